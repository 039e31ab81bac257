/**
 * @file uses.h
 * What reads a DPE table or a form of it, and by which command: dpe-calibrate and dpe-report print
 * it.
 */
#ifndef DPE_USES_H
#define DPE_USES_H

#include "engine/base/base.h"

/** One way to use a table. The command has MODEL and TABLE for the model and the table's file. */
struct dpe_use {
    const char *runtime, *command;
    bool factors; /**< for a table of frequencies alone: without an adapter */
};
enum { DPE_USES = 6 };
extern const struct dpe_use dpe_uses[DPE_USES];

#endif
