/* Scope-bound clean-up: every owner of a resource declares how it ends where it declares the variable. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cb_free_cleanup(void *pointer)
{
    void **slot = pointer;
    free(*slot);
}

static inline void cb_close_cleanup(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

static inline void cb_closedir_cleanup(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

#define cb_autofree __attribute__((cleanup(cb_free_cleanup)))
#define cb_autofd __attribute__((cleanup(cb_close_cleanup)))
#define cb_autodir __attribute__((cleanup(cb_closedir_cleanup)))

static inline int cb_steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define cb_steal(pointer)                    \
    ({                                       \
        __typeof__(pointer) taken = pointer; \
        (pointer) = NULL;                    \
        taken;                               \
    })
