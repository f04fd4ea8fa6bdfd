/* The ids of this process in the user namespace that it is in, and what its cells are mapped to. */
#pragma once

#include <stdbool.h>

/* How a user namespace of this caller is mapped. Root is mapped to an unprivileged id where there is one. */
enum cb_mapping {
    CB_MAPPING_SELF,    /* an ordinary user, or root of a namespace that stands for one: its own id */
    CB_MAPPING_NOBODY,  /* root: CB_NOBODY */
    CB_MAPPING_NONE,    /* root with no other id to map: a cell would be root */
};
#define CB_NOBODY 65534
enum cb_mapping cb_mapping_of_caller(void);
/* Has our own user or group id no place in the user namespace that we are in? False when that can't be seen. */
bool cb_ids_unmapped(void);
/* Does the user namespace that we are in know this id, as a user and as a group? */
bool cb_id_mapped(unsigned id);
