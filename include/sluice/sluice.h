/* SPDX-License-Identifier: Apache-2.0 */
/* The interface for C (C99 and later), and for languages that call C. `sluice.hpp` is the same for C++.
 *
 * Each call does what the call of that name in C++ does; the headers of `sluice/` have the whole truth about it. Here
 * stand the differences:
 *
 * - A call that can fail returns a sluice_code, and writes its results through pointers, which a failure leaves as they
 *   were. A pointer to a result may be NULL only where that is said. Calls that cannot fail return their result.
 * - No exception leaves the library. `sluice_last_error` has the text of the last failure.
 * - Objects are handles, which their `_free` destroys. It sets the handle to NULL, and does nothing to a handle that is
 *   NULL already. Any other call on a NULL handle returns SLUICE_MISUSE, or what an empty handle returns in C++. A
 *   handle that was freed by another copy of the pointer must not be used, as always in C.
 * - A piece of memory is a sluice_memory, an offset and a number of bytes. Slots come back as addresses.
 * - Options are structs that begin as a macro says, for example
 *   `sluice_channel_options options = SLUICE_CHANNEL_OPTIONS;`. NULL stands for these. A newer library takes the
 *   structs of older programs. Texts are copied.
 * - Truths are ints, 0 or 1. Values of enumerations are taken as ints, so that any number can be refused.
 * - Threads: any thread may use a context, a memory and a host stream; one thread at a time every other handle. */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <sluice/c/channel.h>
#include <sluice/c/context.h>
#include <sluice/c/plan.h>
#include <sluice/c/stream.h>
#include <sluice/c/types.h>
#include <sluice/c/window.h>

#endif
