/* From rules on system calls to a classic BPF program. See assemble.c. */
#pragma once

#include "plan/filter.h"
#include "policy/syscalls.h"

/* The number of a row's system call on an architecture, or -1 when it has none there. */
int cb_syscall_number(const struct cb_syscall *row, uint32_t arch);

/* Builds the filter for an architecture. `rules` has one entry per row of the table, in its order. */
int cb_filter_assemble(const struct cb_syscall_rule *rules, uint32_t arch, struct cb_filter *filter,
                       cellblock_error **error);
