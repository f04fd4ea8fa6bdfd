/* See base64.h. */
#include "base/base64.h"

#include <stdint.h>
#include <stdlib.h>

char *cb_base64(const char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (length > SIZE_MAX / 2)
        return NULL;
    char *made = malloc((length + 2) / 3 * 4 + 1);
    if (!made)
        return NULL;
    char *to = made;
    const unsigned char *from = (const unsigned char *)bytes;
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t group =
            (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) | (left > 2 ? from[i + 2] : 0);
        *to++ = digits[group >> 18];
        *to++ = digits[group >> 12 & 63];
        *to++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[group & 63] : '=';
    }
    *to = '\0';
    return made;
}
