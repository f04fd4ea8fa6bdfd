/* A policy as bytes, for a helper process of the same build: the documents in order, by name and text. */
#pragma once

#include "base/frame.h"
#include "policy/policy.h"

void cb_policy_pack(const cellblock_policy *policy, struct cb_text *frame);
int cb_policy_unpack(struct cb_frame_reader *reader, cellblock_policy **policy, cellblock_error **error);
