/**
 * @file p_text.h
 * How a p-value is written.
 */
#ifndef DPE_P_TEXT_H
#define DPE_P_TEXT_H

enum { DPE_P_TEXT = 16 };
/** "p = 0.012", "p < 0.001", "p unknown": the one form in results. Returns the buffer. */
const char *dpe_p_text(double p, char text[DPE_P_TEXT]);

#endif
