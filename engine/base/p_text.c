/* How a p-value is written. */
#include "engine/base/p_text.h"

#include <stdio.h>

const char *dpe_p_text(double p, char text[DPE_P_TEXT])
{
    if (!(p >= 0.0)) {
        snprintf(text, DPE_P_TEXT, "p unknown");
    } else if (p < 0.001) {
        snprintf(text, DPE_P_TEXT, "p < 0.001");
    } else {
        snprintf(text, DPE_P_TEXT, "p = %.3f", p);
    }
    return text;
}
