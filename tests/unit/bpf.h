/* A strict evaluator of classic BPF as seccomp runs it, for testing filters of any architecture on any machine. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Would the kernel take this program? Checks what it checks: known instructions, jumps that stay inside, aligned loads
 * within struct seccomp_data, a return at the end. `reason` (may be NULL) gets a constant string on refusal. */
bool bpf_valid(const struct sock_filter *code, size_t length, const char **reason);

/* Runs a valid program. Returns the value that the filter returns; `steps` (may be NULL) gets the number of
 * instructions that ran, `arguments_read` (may be NULL) whether the answer depended on a load of more than the number
 * and the architecture: if not, and the answer is allow, the kernel does not run the filter for this call at all. */
uint32_t bpf_run(const struct sock_filter *code, size_t length, const struct seccomp_data *data, size_t *steps,
                 bool *arguments_read);
