/* How much a user has running already. */
#pragma once

/* Processes and threads of a user that can be seen from here; 0 without /proc. */
unsigned long cb_tasks_of(unsigned uid);
