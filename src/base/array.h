/* Grows an array held as (pointer, count) by one zeroed element. Room is always the next power of two, so no third
 * field is needed. Returns the new element, or NULL when out of memory (the array is then unchanged). */
#pragma once

#include <stddef.h>

void *cb_array_push_(void **items, size_t *count, size_t item_size);

#define cb_array_push(items, count) \
    ((__typeof__(*(items)))cb_array_push_((void **)(items), (count), sizeof(**(items))))
