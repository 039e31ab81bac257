/**
 * @file eval_score.h
 * `dpe-eval score`: predictions of others, scored.
 */
#ifndef DPE_EVAL_SCORE_H
#define DPE_EVAL_SCORE_H

/** argv[0] is "score", the rest its options. Returns the exit code. */
int dpe_eval_score_main(int argc, char **argv);

#endif
