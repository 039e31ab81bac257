/* schema_tool TABLE...: exit status 0 when outputs/SCHEMA.md and the tables agree (schema_check.h).
 */
#include "tests/outputs/schema_check.h"

int main(int argc, char **argv)
{
    int problems = 0;
    for (int i = 1; i < argc; i++) {
        problems += schema_check(argv[i]);
    }
    return problems > 0;
}
