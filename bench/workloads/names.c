/* Directories, links and new names in the current directory: names. In a cell with protected names these calls are the
 * ones that the supervisor performs, so that nothing can be put where such a name would be. */
#include "clock.h"

#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
    uint64_t started = now_ns();
    for (int i = 0; i < 1000; i++)
        if (mkdir("one", 0755) < 0 || rename("one", "two") < 0 || symlink("two", "link") < 0 || unlink("link") < 0 ||
            rmdir("two") < 0)
            give_up("names");
    print_ns(started);
    return 0;
}
