/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C99 whose ranks use the whole interface for C: `sluice-run -n 3 c_ranks`. */
#include "tests/c/ranks.h"

static int body(sluice_context* context, void* argument) {
  int (*const parts[])(sluice_context*) = {
      ring,        ring_on_a_host_stream, halo_by_a_plan, first_of_several, first_of_several_on_a_stream,
      window,      window_for_targets,    notices,        epochs,           errors,
      closed_peer, sub_context,           lost_peer};
  size_t i;
  EXPECT(strcmp(argument, "argument") == 0);
  for (i = 0; i < sizeof parts / sizeof *parts; ++i) {
    const int failed = parts[i](context);
    if (failed != 0) return failed;
  }
  return sluice_context_check(context);
}

int main(int argc, char** argv) {
  char argument[] = "argument";
  sluice_options options = SLUICE_OPTIONS;
  options.timeout = 30 * SLUICE_SECOND;
  return sluice_run(argc, argv, body, argument, &options);
}
