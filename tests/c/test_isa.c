/* The choice of an instruction set by MGPU_ISA, and that the loops which resample images follow it.
 */
#include "core/isa.h"
#include "data/transforms/mix_rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#ifdef __aarch64__
#define NARROWEST "neon"
#define FOREIGN "baseline"
#else
#define NARROWEST "baseline"
#define FOREIGN "neon"
#endif

static mg_status choose(const char *name, mg_isa *isa) {
    assert_int_equal(setenv("MGPU_ISA", name, 1), 0);
    return mg_isa_choose(isa);
}

static void names_choose_sets(void **state) {
    (void)state;
    mg_isa isa;
    assert_int_equal(choose("", &isa), MG_OK);
    assert_int_equal(isa, mg_isa_widest());
    assert_int_equal(choose(NARROWEST, &isa), MG_OK);
    assert_int_equal(isa, MG_ISA_NARROWEST);
    assert_int_equal(choose("avx2", &isa), mg_isa_widest() >= MG_ISA_AVX2 ? MG_OK : MG_USAGE);
    assert_int_equal(isa, mg_isa_widest() >= MG_ISA_AVX2 ? MG_ISA_AVX2 : MG_ISA_NARROWEST);
}

static void wrong_names_are_refused(void **state) {
    (void)state;
    mg_isa isa;
    assert_int_equal(choose(FOREIGN, &isa), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "this processor lacks that instruction set"));
    assert_int_equal(choose("avx3", &isa), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "unknown instruction set"));
    assert_int_equal(isa, MG_ISA_NARROWEST);
}

/* The choice is made once per process, so the other sets are not tried. */
static void images_are_resampled_with_the_set_of_the_environment(void **state) {
    (void)state;
    setenv("MGPU_ISA", NARROWEST, 1);
    assert_true(mg_mix_rows_chosen() == mg_mix_rows_baseline);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_choose_sets),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(images_are_resampled_with_the_set_of_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
