/**
 * @file detect.h
 * The sweep: which length suits which frequency group.
 *
 * A *cell* is (group, detecting length): the group's pairs move with scale s = L/t, every other
 * group stays at half the trained length, s = 2L/L0. Cells with equal plans are one
 * *configuration*, which is run once. A sweep runs every configuration on every sample. Its results
 * are rows (outputs/rows/rows.h), and everything below is computed from rows, so a table can be
 * rebuilt from them at any time. Source of the definitions: the DPE paper's detection; README.md of
 * detect/.
 *
 * Nothing here keeps state between calls, and nothing prints.
 */
#ifndef DPE_DETECT_H
#define DPE_DETECT_H

#include "detect/sweep/grid.h"
#include "detect/sweep/race.h"
#include "detect/sweep/ranking.h"
#include "detect/sweep/report.h"
#include "detect/sweep/search.h"
#include "detect/sweep/select.h"

#endif
