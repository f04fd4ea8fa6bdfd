/* Starting processes: spawn. 500 times fork, exec of /bin/true, wait. */
#include "clock.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    uint64_t started = now_ns();
    for (int i = 0; i < 500; i++) {
        pid_t pid = fork();
        if (pid < 0)
            give_up("fork");
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        int status;
        if (waitpid(pid, &status, 0) < 0 || status != 0)
            give_up("true");
    }
    print_ns(started);
    return 0;
}
