/* Methods of strings that ask what characters they are of, as Python has them. */
#include "eval/template/template_parts.h"

static struct value do_isspace(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return dpe_template_bool(self.text.n > 0 &&
                             dpe_template_strip(render, self.text, NULL, true, true).text.n == 0);
}

/* Whether there are characters, and all of them are of the kind. */
static struct value all_are(struct render *render, struct value self, bool (*is)(uint32_t point))
{
    bool all = self.text.n > 0;
    dpe_template_step(render, self.text.n / 16);
    for (size_t i = 0, n = 0; i < self.text.n && all; i += n) {
        all = is(dpe_py_next(self.text.s + i, self.text.s + self.text.n, &n));
    }
    return dpe_template_bool(all);
}

static bool is_decimal(uint32_t point)
{
    return dpe_py_digit(point) >= 0;
}

static bool is_digit(uint32_t point)
{
    return is_decimal(point) || dpe_unicode_has(&dpe_case_other_digits, point);
}

static bool is_numeric(uint32_t point)
{
    return dpe_py_is(&dpe_unicode_N, point) || dpe_unicode_has(&dpe_case_other_numbers, point);
}

static bool is_letter(uint32_t point)
{
    return dpe_unicode_has(&dpe_unicode_L, point);
}

static bool is_alnum(uint32_t point)
{
    return point != '_' && dpe_py_word(point);
}

static bool is_ascii(uint32_t point)
{
    return point < 0x80;
}

static struct value do_isdigit(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return all_are(render, self, is_digit);
}

static struct value do_isdecimal(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return all_are(render, self, is_decimal);
}

static struct value do_isnumeric(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return all_are(render, self, is_numeric);
}

static struct value do_isalpha(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return all_are(render, self, is_letter);
}

static struct value do_isalnum(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return all_are(render, self, is_alnum);
}

static struct value do_isprintable(struct render *render, struct value self,
                                   const struct args *args)
{
    (void)args;
    return self.text.n == 0 ? dpe_template_bool(true) : all_are(render, self, dpe_py_printable);
}

static struct value do_isascii(struct render *render, struct value self, const struct args *args)
{
    (void)args;
    return self.text.n == 0 ? dpe_template_bool(true) : all_are(render, self, is_ascii);
}

static struct value do_islower(struct render *render, struct value self, const struct args *args)
{
    return dpe_template_bool(
        dpe_template_find_test(dpe_span_of("lower"))->holds(render, self, args));
}

static struct value do_isupper(struct render *render, struct value self, const struct args *args)
{
    return dpe_template_bool(
        dpe_template_find_test(dpe_span_of("upper"))->holds(render, self, args));
}

static const struct method methods[] = {
    {"isspace", KIND_STRING, "", do_isspace},     {"isdigit", KIND_STRING, "", do_isdigit},
    {"isdecimal", KIND_STRING, "", do_isdecimal}, {"isnumeric", KIND_STRING, "", do_isnumeric},
    {"isalpha", KIND_STRING, "", do_isalpha},     {"isalnum", KIND_STRING, "", do_isalnum},
    {"isascii", KIND_STRING, "", do_isascii},     {"isprintable", KIND_STRING, "", do_isprintable},
    {"islower", KIND_STRING, "", do_islower},     {"isupper", KIND_STRING, "", do_isupper},
};

const struct method *dpe_template_class_method(struct dpe_span name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (dpe_span_equal(name, dpe_span_of(methods[i].name))) {
            return &methods[i];
        }
    }
    return NULL;
}
