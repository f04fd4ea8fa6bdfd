/* Length-prefixed records between a caller and its helper process. Both ends are the same build of this library. */
#pragma once

#include "base/text.h"

#include <stdint.h>

void cb_frame_number(struct cb_text *frame, uint64_t number);
void cb_frame_bytes(struct cb_text *frame, const char *bytes, size_t length);
void cb_frame_string(struct cb_text *frame, const char *string); /* NULL stays NULL */
void cb_frame_list(struct cb_text *frame, const char *const *list); /* NULL-terminated */

struct cb_frame_reader {
    const char *at;
    size_t left;
    bool failed;     /* something was missing: everything after reads as zero */
};

uint64_t cb_read_number(struct cb_frame_reader *reader);
/* Points into the frame; NUL-terminated. */
const char *cb_read_bytes(struct cb_frame_reader *reader, size_t *length);
const char *cb_read_string(struct cb_frame_reader *reader);
/* Newly allocated list of pointers into the frame; NULL on failure. */
const char **cb_read_list(struct cb_frame_reader *reader);

/* Sends a frame with its length in front, and up to three descriptors with the first byte. Blocks. */
int cb_frame_send(int fd, const struct cb_text *frame, const int *fds, size_t fd_count);
/* Receives one. Blocks. Returns 0, or -1 with errno (EPIPE at the end of the stream). `fds` may be NULL. */
int cb_frame_receive(int fd, struct cb_text *frame, int fds[3]);
