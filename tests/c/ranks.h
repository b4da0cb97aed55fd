/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank checks what it promises: each of its parts returns 0, or a code that its body returns. */
#ifndef TESTS_C_RANKS_H
#define TESTS_C_RANKS_H

#include <sluice/sluice.h>

#include <stdio.h>
#include <string.h>

enum { kWord = 8 }; /* bytes of a word */

/* Ends the part unless the call succeeds. */
#define MUST(call)                                                                                              \
  do {                                                                                                          \
    const sluice_code returned_ = (call);                                                                       \
    if (returned_ != SLUICE_OK) {                                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, sluice_code_name(returned_), sluice_last_error()); \
      return (int)returned_;                                                                                    \
    }                                                                                                           \
  } while (0)

/* Ends the part unless it is so. */
#define EXPECT(fact)                                                     \
  do {                                                                   \
    if (!(fact)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #fact); \
      return 99;                                                         \
    }                                                                    \
  } while (0)

/* Ends the part unless the call fails with this code, and the text of the error begins with its name. */
#define REFUSED(code, call)                                                                              \
  do {                                                                                                   \
    const sluice_code returned_ = (call);                                                                \
    const char* const name_ = sluice_code_name(code);                                                    \
    if (returned_ != (code) || strncmp(sluice_last_error(), name_, strlen(name_)) != 0) {                \
      fprintf(stderr, "%s:%d: %s, not %s: %s\n", __FILE__, __LINE__, sluice_code_name(returned_), name_, \
              sluice_last_error());                                                                      \
      return 99;                                                                                         \
    }                                                                                                    \
  } while (0)

/* Returns when every rank has added 1 to the word at `place` of the target. */
int meet(sluice_target* target, size_t place, int ranks);

int ring(sluice_context* context);
int ring_on_a_host_stream(sluice_context* context);
int halo_by_a_plan(sluice_context* context);
int first_of_several(sluice_context* context);
int first_of_several_on_a_stream(sluice_context* context);
int window(sluice_context* context);
int window_for_targets(sluice_context* context);
int notices(sluice_context* context);
int epochs(sluice_context* context);
int errors(sluice_context* context);
int closed_peer(sluice_context* context);
int sub_context(sluice_context* context);
int lost_peer(sluice_context* context);

#endif
