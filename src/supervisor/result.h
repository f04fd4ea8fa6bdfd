/* What a run came to. */
#pragma once

#include "base/frame.h"
#include "supervisor/supervisor.h"

struct cellblock_result {
    enum cb_end end;
    char *limit;            /* the policy's word for the limit that ended it, or NULL */
    int exit_code;          /* -1: it did not exit by itself */
    int signal;
    bool collected;
    struct cb_text streams[2];
    bool truncated[2];
    int lost[2];            /* errno of what the caller's file did not take */
    double wall_ms, cpu_ms;
    uint64_t peak_memory, peak_processes, processes, written, inodes;
    struct cb_traffic traffic;
    json_t *denials;
    json_t *report;
};

/* For the helper process: a result there and back. */
void cb_result_pack(const cellblock_result *result, struct cb_text *frame);
int cb_result_unpack(struct cb_frame_reader *reader, cellblock_result **result, cellblock_error **error);
