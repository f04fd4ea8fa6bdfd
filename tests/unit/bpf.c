/* See bpf.h. Knows the whole instruction set that the kernel accepts for seccomp, less the scratch memory and the index
 * register, which our filters do not use: a program with them is refused here, so nothing is silently misread. */
#include "bpf.h"

#include <string.h>

static bool refuse(const char **reason, const char *text)
{
    if (reason)
        *reason = text;
    return false;
}

bool bpf_valid(const struct sock_filter *code, size_t length, const char **reason)
{
    if (length == 0 || length > BPF_MAXINSNS)
        return refuse(reason, "no instructions, or too many");
    for (size_t at = 0; at < length; at++) {
        const struct sock_filter *op = &code[at];
        size_t left = length - at - 1;
        switch (op->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (op->k >= sizeof(struct seccomp_data) || op->k % 4 != 0)
                return refuse(reason, "load outside struct seccomp_data, or not aligned");
            break;
        case BPF_ALU | BPF_AND | BPF_K:
        case BPF_RET | BPF_K:
            break;
        case BPF_JMP | BPF_JA:
            if (op->k >= left)
                return refuse(reason, "jump past the end");
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
        case BPF_JMP | BPF_JGE | BPF_K:
        case BPF_JMP | BPF_JGT | BPF_K:
        case BPF_JMP | BPF_JSET | BPF_K:
            if (op->jt >= left || op->jf >= left)
                return refuse(reason, "jump past the end");
            break;
        default:
            return refuse(reason, "unknown instruction");
        }
    }
    if (code[length - 1].code != (BPF_RET | BPF_K))
        return refuse(reason, "does not end with a return");
    return true;
}

uint32_t bpf_run(const struct sock_filter *code, size_t length, const struct seccomp_data *data, size_t *steps,
                 bool *arguments_read)
{
    uint32_t accumulator = 0;
    size_t ran = 0;
    bool read = false;
    uint32_t answer = SECCOMP_RET_KILL_PROCESS; /* never used for a valid program: it always gets to a return */
    for (size_t at = 0; at < length; at++) {
        const struct sock_filter *op = &code[at];
        ran++;
        if (BPF_CLASS(op->code) == BPF_RET) {
            answer = op->k;
            break;
        }
        bool taken = false;
        switch (op->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&accumulator, (const char *)data + op->k, sizeof accumulator);
            read |= op->k >= offsetof(struct seccomp_data, instruction_pointer);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            accumulator &= op->k;
            continue;
        case BPF_JMP | BPF_JA:
            at += op->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            taken = accumulator == op->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            taken = accumulator >= op->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            taken = accumulator > op->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            taken = (accumulator & op->k) != 0;
            break;
        }
        at += taken ? op->jt : op->jf;
    }
    if (steps)
        *steps = ran;
    if (arguments_read)
        *arguments_read = read;
    return answer;
}
