/**
 * @file eval_data.h
 * `dpe-eval data`: samples written for other runtimes.
 */
#ifndef DPE_EVAL_DATA_H
#define DPE_EVAL_DATA_H

/** argv[0] is "data", the rest its options. Returns the exit code. */
int dpe_eval_data_main(int argc, char **argv);

#endif
