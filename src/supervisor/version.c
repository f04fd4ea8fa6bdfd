/* The version, from the build. */
#include "built.h"
#include "cellblock.h"

const char *cellblock_version(void)
{
    return CELLBLOCK_VERSION;
}
