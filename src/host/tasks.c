/* See tasks.h. */
#include "host/tasks.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static unsigned long threads_if(int proc, const char *pid, unsigned uid)
{
    char path[64], text[2048];
    struct stat owner_of_directory; /* the effective id, or root's: enough to pass over most */
    if (fstatat(proc, pid, &owner_of_directory, 0) < 0 ||
        (owner_of_directory.st_uid != uid && owner_of_directory.st_uid != 0))
        return 0;
    snprintf(path, sizeof path, "%s/status", pid);
    cb_autofd int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *owner = strstr(text, "\nUid:"), *threads = strstr(text, "\nThreads:");
    if (!owner || !threads || strtoul(owner + strlen("\nUid:"), NULL, 10) != uid)
        return 0;
    return strtoul(threads + strlen("\nThreads:"), NULL, 10);
}

unsigned long cb_tasks_of(unsigned uid)
{
    DIR *proc = opendir("/proc");
    unsigned long count = 0;
    for (const struct dirent *entry; proc && (entry = readdir(proc));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && strlen(entry->d_name) < 16)
            count += threads_if(dirfd(proc), entry->d_name, uid);
    if (proc)
        closedir(proc);
    return count;
}
