/* See result.h. `end` is decided by what did the ending: our own timer, cap or cancel first, else what init reported of
 * the program. */
#include "supervisor/result.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "supervisor/egress.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static const char *const end_words[] = {
    [CB_END_NONE] = "setup-failed", [CB_END_EXITED] = "exited",       [CB_END_SIGNALED] = "signaled",
    [CB_END_TIMEOUT] = "timeout",   [CB_END_CANCELLED] = "cancelled", [CB_END_OUTPUT] = "output",
    [CB_END_MEMORY] = "memory",     [CB_END_PROCESSES] = "processes", [CB_END_DISK] = "disk",
    [CB_END_NETWORK] = "network",
};

void cellblock_result_free(cellblock_result *result)
{
    if (!result)
        return;
    cb_text_free(&result->streams[0]);
    cb_text_free(&result->streams[1]);
    json_decref(result->denials);
    json_decref(result->report);
    free(result->limit);
    free(result);
}

static double milliseconds(struct timespec from, struct timespec to)
{
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

static double cpu_milliseconds(struct timeval used)
{
    return (double)used.tv_sec * 1e3 + (double)used.tv_usec / 1e3;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int cb_result_make(struct cellblock_cell *cell, cellblock_result **result, cellblock_error **error)
{
    cellblock_result *made = calloc(1, sizeof *made);
    if (!made || !(made->report = cb_plan_report(cell->plan)) || !(made->denials = cb_denials_json(cell))) {
        cellblock_result_free(made);
        return cb_fail_memory(error);
    }
    made->exit_code = -1;
    made->collected = cell->collect;
    if (cell->status_known && WIFEXITED(cell->status)) {
        made->end = CB_END_EXITED;
        made->exit_code = WEXITSTATUS(cell->status);
    } else {
        made->end = CB_END_SIGNALED;
        made->signal = cell->status_known ? WTERMSIG(cell->status) : SIGKILL;
    }
    if (cell->reason != CB_END_NONE)
        made->end = cell->reason;
    made->limit = cell->limit ? strdup(cell->limit) : NULL;
    for (int i = 0; i < 2; i++) {
        struct cb_pump *pump = &cell->pumps[i + 1];
        made->streams[i] = pump->text;
        pump->text = (struct cb_text){0};
        made->lost[i] = pump->lost;
        made->truncated[i] = pump->truncated || pump->lost;
    }
    made->wall_ms = milliseconds(cell->started, cell->ended);
    made->cpu_ms = cpu_milliseconds(cell->usage.ru_utime) + cpu_milliseconds(cell->usage.ru_stime);
    if ((double)cell->peaks.cpu_us / 1e3 > made->cpu_ms)
        made->cpu_ms = (double)cell->peaks.cpu_us / 1e3; /* with those that nobody waited for */
    /* Of the largest process, or of all at once: whichever was seen to be more. */
    made->peak_memory = larger(cell->peaks.memory, (uint64_t)cell->usage.ru_maxrss * 1024);
    made->peak_processes = larger(cell->peaks.processes, 1);
    made->processes = cell->processes > 0 ? (uint64_t)cell->processes : 0;
    made->written = larger(cell->peaks.written, (uint64_t)cell->usage.ru_oublock * 512);
    made->inodes = cell->peaks.inodes;
    made->traffic = cb_egress_traffic(cell->egress);
    *result = made;
    return 0;
}

const char *cellblock_result_end(const cellblock_result *result)
{
    return end_words[result->end];
}

const char *cellblock_result_limit(const cellblock_result *result)
{
    return result->limit;
}

int cellblock_result_lost(const cellblock_result *result, int stream)
{
    return stream == 1 || stream == 2 ? result->lost[stream - 1] : 0;
}

int cellblock_result_exit_code(const cellblock_result *result)
{
    return result->exit_code;
}

int cellblock_result_signal(const cellblock_result *result)
{
    return result->signal;
}

int cellblock_result_shell_status(const cellblock_result *result)
{
    if (result->end == CB_END_TIMEOUT)
        return 124;
    /* Passed a limit, and ended by itself before that was noticed: not a success. */
    if (result->exit_code == 0 && result->limit)
        return 128 + SIGKILL;
    return result->exit_code >= 0 ? result->exit_code : 128 + result->signal;
}

static const char *stream(const cellblock_result *result, int which, size_t *length)
{
    if (length)
        *length = result->streams[which].length;
    return result->streams[which].data ? result->streams[which].data : "";
}

const char *cellblock_result_stdout(const cellblock_result *result, size_t *length)
{
    return stream(result, 0, length);
}

const char *cellblock_result_stderr(const cellblock_result *result, size_t *length)
{
    return stream(result, 1, length);
}

/* ---- JSON ---- */

/* Bytes as text, with U+FFFD for what is not UTF-8. */
static json_t *readable(const char *bytes, size_t length)
{
    cb_autotext struct cb_text text = {0};
    for (size_t at = 0; at < length;) {
        size_t good = cb_utf8_prefix(bytes + at, length - at);
        cb_text_add(&text, bytes + at, good);
        at += good;
        if (at < length) {
            cb_text_add(&text, "\xef\xbf\xbd", 3);
            at++;
        }
    }
    return text.failed ? NULL : json_stringn(text.data ? text.data : "", text.length);
}

/* `name`, and beside it `name`_base64 when the bytes are not text. */
static int add_stream(json_t *object, const char *name, const struct cb_text *bytes)
{
    const char *data = bytes->data ? bytes->data : "";
    if (json_object_set_new(object, name, readable(data, bytes->length)) < 0)
        return -1;
    if (cb_utf8_prefix(data, bytes->length) == bytes->length)
        return 0;
    cb_autofree char *exact = cb_base64(data, bytes->length);
    cb_autofree char *key = cb_format("%s_base64", name);
    return exact && key ? json_object_set_new(object, key, json_string(exact)) : -1;
}

static json_t *traffic_json(const cellblock_result *result)
{
    if (result->traffic.unknown)
        return json_null();
    return json_pack("{s:I, s:I, s:I}", "connections", (json_int_t)result->traffic.connections, "sent",
                     (json_int_t)result->traffic.sent, "received", (json_int_t)result->traffic.received);
}

int cellblock_result_json(const cellblock_result *result, char **json, cellblock_error **error)
{
    json_t *object = json_pack("{s:s, s:o, s:o}", "end", end_words[result->end],
                               "exit_code", result->exit_code >= 0 ? json_integer(result->exit_code) : json_null(),
                               "signal", result->signal ? json_integer(result->signal) : json_null());
    json_t *processes = result->processes ? json_integer((json_int_t)result->processes) : json_null();
    int failed = !object || !processes;
    if (!failed && result->collected)
        failed = add_stream(object, "stdout", &result->streams[0]) < 0 ||
                 add_stream(object, "stderr", &result->streams[1]) < 0;
    if (!failed)
        failed = json_object_set_new(object, "truncated", json_pack("{s:b, s:b}", "stdout", result->truncated[0],
                                                                    "stderr", result->truncated[1])) < 0 ||
                 json_object_set_new(object, "limit", result->limit ? json_string(result->limit) : json_null()) < 0 ||
                 json_object_set_new(object, "usage", json_pack("{s:f, s:f, s:I, s:o, s:I, s:I, s:I, s:o}", "wall_ms",
                                                                result->wall_ms, "cpu_ms", result->cpu_ms,
                                                                "peak_memory", (json_int_t)result->peak_memory,
                                                                "processes", processes, "peak_processes",
                                                                (json_int_t)result->peak_processes, "written",
                                                                (json_int_t)result->written, "inodes",
                                                                (json_int_t)result->inodes, "network",
                                                                traffic_json(result))) < 0 ||
                 /* A workspace that is written directly keeps no record of changes. */
                 json_object_set_new(object, "changes", json_null()) < 0 ||
                 json_object_set(object, "denials", result->denials) < 0 ||
                 json_object_set(object, "report", result->report) < 0;
    *json = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    return *json ? 0 : cb_fail_memory(error);
}

/* ---- To and from a helper process ---- */

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void cb_result_pack(const cellblock_result *result, struct cb_text *frame)
{
    cb_frame_number(frame, result->end);
    cb_frame_number(frame, (uint64_t)(int64_t)result->exit_code);
    cb_frame_number(frame, (uint64_t)result->signal);
    cb_frame_number(frame, result->collected);
    for (int i = 0; i < 2; i++) {
        cb_frame_bytes(frame, result->streams[i].data, result->streams[i].length);
        cb_frame_number(frame, result->truncated[i]);
    }
    cb_frame_number(frame, bits_of(result->wall_ms));
    cb_frame_number(frame, bits_of(result->cpu_ms));
    cb_frame_number(frame, result->peak_memory);
    cb_frame_number(frame, result->processes);
    cb_frame_number(frame, result->written);
    cb_frame_number(frame, result->peak_processes);
    cb_frame_number(frame, (uint64_t)result->lost[0]);
    cb_frame_number(frame, (uint64_t)result->lost[1]);
    cb_frame_number(frame, result->inodes);
    cb_frame_number(frame, result->traffic.unknown);
    cb_frame_number(frame, result->traffic.connections);
    cb_frame_number(frame, result->traffic.sent);
    cb_frame_number(frame, result->traffic.received);
    cb_frame_string(frame, result->limit);
    cb_autofree char *denials = json_dumps(result->denials, JSON_COMPACT);
    cb_autofree char *report = json_dumps(result->report, JSON_COMPACT);
    cb_frame_string(frame, denials);
    cb_frame_string(frame, report);
}

int cb_result_unpack(struct cb_frame_reader *reader, cellblock_result **result, cellblock_error **error)
{
    cellblock_result *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    made->end = (enum cb_end)cb_read_number(reader);
    made->exit_code = (int)(int64_t)cb_read_number(reader);
    made->signal = (int)cb_read_number(reader);
    made->collected = cb_read_number(reader);
    for (int i = 0; i < 2; i++) {
        size_t length;
        const char *bytes = cb_read_bytes(reader, &length);
        cb_text_add(&made->streams[i], bytes ? bytes : "", length);
        made->truncated[i] = cb_read_number(reader);
    }
    made->wall_ms = from_bits(cb_read_number(reader));
    made->cpu_ms = from_bits(cb_read_number(reader));
    made->peak_memory = cb_read_number(reader);
    made->processes = cb_read_number(reader);
    made->written = cb_read_number(reader);
    made->peak_processes = cb_read_number(reader);
    made->lost[0] = (int)cb_read_number(reader);
    made->lost[1] = (int)cb_read_number(reader);
    made->inodes = cb_read_number(reader);
    made->traffic.unknown = cb_read_number(reader);
    made->traffic.connections = cb_read_number(reader);
    made->traffic.sent = cb_read_number(reader);
    made->traffic.received = cb_read_number(reader);
    const char *limit = cb_read_string(reader);
    made->limit = limit ? strdup(limit) : NULL;
    const char *denials = cb_read_string(reader), *report = cb_read_string(reader);
    made->denials = denials ? json_loads(denials, 0, NULL) : NULL;
    made->report = report ? json_loads(report, 0, NULL) : NULL;
    if (!reader->failed && made->denials && made->report && made->end <= CB_END_NETWORK) {
        *result = made;
        return 0;
    }
    cellblock_result_free(made);
    return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, EPROTO, "reading the result from the helper program");
}
