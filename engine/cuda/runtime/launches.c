/* Lists of launches. A list is one piece of memory: of each launch a head, then its arguments, all
 * at multiples of 64, what lies between them zero. */
#include "engine/cuda/runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, OUT_OF_MEMORY = 2 };

struct head {
    struct dpe_kernel_launch launch; /* without its two pointers to arrays */
    uint32_t sizes[DPE_MOST_ARGUMENTS];
};

static _Thread_local struct dpe_launches *target;

void dpe_launches_keep(struct dpe_launches *list)
{
    target = list;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool grow(struct dpe_launches *list, size_t bytes)
{
    if (list->used + bytes <= list->room) {
        return true;
    }
    size_t room = aligned(2 * (list->used + bytes));
    unsigned char *grown = aligned_alloc(ALIGNMENT, room);
    if (grown == NULL) {
        return false;
    }
    if (list->used > 0) {
        memcpy(grown, list->memory, list->used);
    }
    free(list->memory);
    list->memory = grown;
    list->room = room;
    return true;
}

static bool add(struct dpe_launches *list, const struct dpe_kernel_launch *launch)
{
    size_t bytes = aligned(sizeof(struct head));
    for (int i = 0; i < launch->n; i++) {
        bytes += aligned(launch->sizes[i]);
    }
    if (!grow(list, bytes)) {
        return false;
    }
    unsigned char *at = list->memory + list->used;
    struct head *head = (struct head *)(void *)at;
    memset(at, 0, bytes);
    /* Field by field: a copy of the structure would bring its padding along. */
    head->launch.kernel = launch->kernel;
    head->launch.call = launch->call;
    memcpy(head->launch.grid, launch->grid, sizeof launch->grid);
    memcpy(head->launch.block, launch->block, sizeof launch->block);
    head->launch.shared = launch->shared;
    head->launch.n = launch->n;
    head->launch.product = launch->product;
    memcpy(head->sizes, launch->sizes, (size_t)launch->n * sizeof *launch->sizes);
    at += aligned(sizeof *head);
    for (int i = 0; i < launch->n; i++) {
        memcpy(at, launch->arguments[i], launch->sizes[i]);
        at += aligned(launch->sizes[i]);
    }
    list->used += bytes;
    return true;
}

bool dpe_launches_take(const struct dpe_kernel_launch *launch, int *code)
{
    if (target == NULL) {
        return false;
    }
    *code = add(target, launch) ? 0 : OUT_OF_MEMORY;
    return true;
}

bool dpe_launches_equal(const struct dpe_launches *a, const struct dpe_launches *b)
{
    return a->used == b->used && (a->used == 0 || memcmp(a->memory, b->memory, a->used) == 0);
}

int dpe_launches_each(const struct dpe_launches *list,
                      int (*make)(const struct dpe_kernel_launch *launch))
{
    int code = 0;
    for (size_t at = 0; at < list->used && code == 0;) {
        const struct head *head = (const struct head *)(const void *)(list->memory + at);
        const void *arguments[DPE_MOST_ARGUMENTS];
        struct dpe_kernel_launch launch = head->launch;
        launch.arguments = arguments;
        launch.sizes = head->sizes;
        at += aligned(sizeof *head);
        for (int i = 0; i < launch.n; i++) {
            arguments[i] = list->memory + at;
            at += aligned(head->sizes[i]);
        }
        code = make(&launch);
    }
    return code;
}

int dpe_launches_copy(struct dpe_launches *to, const struct dpe_launches *from)
{
    if (from->used > 0) {
        struct dpe_launches copy = {0};
        if (!grow(&copy, from->used)) {
            return OUT_OF_MEMORY;
        }
        memcpy(copy.memory, from->memory, from->used);
        copy.used = from->used;
        free(to->memory);
        *to = copy;
    } else {
        to->used = 0;
    }
    return 0;
}

void dpe_launches_free(struct dpe_launches *list)
{
    free(list->memory);
    *list = (struct dpe_launches){0};
}
