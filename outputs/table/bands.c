/* Tables of bands: their check, and what they do to a token. */
#include "outputs/table/dpe_table_internal.h"

#include <math.h>

/* Positions beyond this are none. */
static const double most = 0x1p40;

static const double *row_of(const struct dpe_table_values *values, int64_t band, int64_t side)
{
    return values->bands + (2 * band + side) * dpe_table_band_row(values);
}

static bool whole(double x, double low, double high)
{
    return x >= low && x <= high && x == floor(x);
}

/* What is wrong with a row; NULL: nothing. */
static const char *check_numbers(const double *row)
{
    double high = row[DPE_TABLE_BAND_HIGH];
    bool chunks = row[DPE_TABLE_BAND_BY] == 1.0;
    if (!whole(row[DPE_TABLE_BAND_BY], 0.0, 2.0)) {
        return "what it goes by, 0, 1 or 2";
    }
    if (!whole(row[DPE_TABLE_BAND_LOW], 0.0, most) || !whole(high, 0.0, most) ||
        (high != 0.0 && high <= row[DPE_TABLE_BAND_LOW])) {
        return "a range of whole numbers, from 0 on";
    }
    if (!whole(row[DPE_TABLE_BAND_CHUNK], chunks ? 1.0 : 0.0, chunks ? most : 0.0)) {
        return "a chunk of whole tokens where it goes by chunks, else 0";
    }
    if (!whole(row[DPE_TABLE_MAP_FLOOR], 0.0, 1.0) ||
        !whole(row[DPE_TABLE_MAP_PERIOD], 0.0, most) ||
        !(row[DPE_TABLE_MAP_CAP] >= 0.0 && row[DPE_TABLE_MAP_CAP] <= most)) {
        return "a flag of rounding, a period and a cap";
    }
    double groups = row[DPE_TABLE_MAP_GROUP_MOST];
    double rate = row[DPE_TABLE_MAP_GROUP_RATE];
    bool curve = whole(groups, 2.0, 0x1p20) && rate > 0.0 && rate <= 1e6 &&
                 whole(row[DPE_TABLE_MAP_GROUP_FROM], 0.0, most);
    bool none = groups == 0.0 && rate == 0.0 && row[DPE_TABLE_MAP_GROUP_FROM] == 0.0;
    return curve || none ? NULL : "groups that grow at a rate, or three zeros";
}

static int check_row(const struct dpe_table_values *values, int64_t band, int64_t side,
                     char *message)
{
    const double *row = row_of(values, band, side);
    const double *scale = row + DPE_TABLE_BAND_NUMBERS;
    const char *wrong = check_numbers(row);
    for (int number = 0; number <= DPE_TABLE_BAND_CHUNK && wrong == NULL; number++) {
        wrong = row[number] == row_of(values, band, 0)[number] ? NULL : "one range for both sides";
    }
    for (int64_t j = 0; j < values->n_pairs && wrong == NULL; j++) {
        double offset = scale[values->n_pairs + j];
        bool good = scale[j] == 0.0 || (scale[j] >= 1.0 && scale[j] <= most);
        wrong = !good                     ? "scales from 1 on, or 0 for a constant"
                : !(fabs(offset) <= most) ? "finite offsets"
                                          : NULL;
    }
    return wrong == NULL
               ? DPE_TABLE_OK
               : dpe_table_fail(message, DPE_TABLE_BAD_FILE, "bands: band %lld, %s: expected %s",
                                (long long)band, side == 0 ? "queries" : "keys", wrong);
}

int dpe_table_check_bands(const struct dpe_table_values *values, char *message)
{
    if (values->n_bands == 0) {
        return DPE_TABLE_OK;
    }
    bool alone =
        values->frequencies == 0 && values->unrounded == 0 && values->top_k == values->n_pairs;
    for (int64_t g = 0; g < values->n_groups; g++) {
        alone = alone && values->scale_factor[g] == 1.0;
    }
    if (!alone) {
        return dpe_table_fail(
            message, DPE_TABLE_BAD_FILE,
            "a table of bands moves all pairs by them alone: expected scales of 1, "
            "unrounded 0 and top_k %lld",
            (long long)values->n_pairs);
    }
    int error = DPE_TABLE_OK;
    for (int64_t i = 0; i < 2 * values->n_bands && error == DPE_TABLE_OK; i++) {
        error = check_row(values, i / 2, i % 2, message);
    }
    return error;
}

int dpe_table_band_of(const struct dpe_table *table, int64_t m, int64_t n)
{
    const struct dpe_table_values *values = &table->values;
    if (values->n_bands == 0) {
        return values->frequencies == 0 && m - n >= values->window ? DPE_TABLE_FAR : DPE_TABLE_NEAR;
    }
    for (int64_t b = 0; b < values->n_bands; b++) {
        const double *row = row_of(values, b, 0);
        int64_t chunk = (int64_t)row[DPE_TABLE_BAND_CHUNK];
        int64_t x = chunk > 0 ? m / chunk - n / chunk : row[DPE_TABLE_BAND_BY] == 2.0 ? n : m - n;
        double high = row[DPE_TABLE_BAND_HIGH];
        if ((double)x >= row[DPE_TABLE_BAND_LOW] && (high == 0.0 || (double)x < high)) {
            return (int)b;
        }
    }
    return -1;
}

/* Groups of k tokens end before the first that the curve gives k + 1. */
static double group_of(const double *row, double position)
{
    double c = row[DPE_TABLE_MAP_GROUP_MOST];
    double left = position - row[DPE_TABLE_MAP_GROUP_FROM];
    double first = 0.0;
    double k = 1.0;
    for (; k < c - 1.0; k++) {
        double end =
            ceil(log((k + 1.0) * (c - 1.0) / (c - k - 1.0)) / row[DPE_TABLE_MAP_GROUP_RATE]);
        double tokens = fmax(0.0, end - first) * k;
        if (left < tokens) {
            break;
        }
        left -= tokens;
        first = fmax(first, end);
    }
    return left > 0.0 ? first + floor(left / k) : first;
}

double dpe_table_band_position(const struct dpe_table_values *values, int band, int side,
                               int64_t pair, int64_t position)
{
    const double *row = row_of(values, band, side);
    double scale = row[DPE_TABLE_BAND_NUMBERS + pair];
    double offset = row[DPE_TABLE_BAND_NUMBERS + values->n_pairs + pair];
    double period = row[DPE_TABLE_MAP_PERIOD];
    double cap = row[DPE_TABLE_MAP_CAP];
    double x =
        row[DPE_TABLE_MAP_GROUP_MOST] > 0.0 ? group_of(row, (double)position) : (double)position;
    x = period > 0.0 ? fmod(x, period) : x;
    x = scale == 0.0 ? 0.0 : x / scale;
    x = (row[DPE_TABLE_MAP_FLOOR] != 0.0 ? floor(x) : x) + offset;
    return cap > 0.0 ? fmin(x, cap) : x;
}
