/**
 * @file eval_commands.h
 * Commands of dpe-eval that run no model. argv[0] is the command, the rest its options. They return
 * the exit code.
 */
#ifndef DPE_EVAL_COMMANDS_H
#define DPE_EVAL_COMMANDS_H

/** `dpe-eval score`: predictions of others, scored. */
int dpe_eval_score_main(int argc, char **argv);
/** `dpe-eval data`: samples written for other runtimes. */
int dpe_eval_data_main(int argc, char **argv);

#endif
