/* Base64 for output that is not text. */
#pragma once

#include <stddef.h>

/* NULL when out of memory. */
char *cb_base64(const char *bytes, size_t length);
