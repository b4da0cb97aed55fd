/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of failures, timeouts and handles. Read first: sluice.h. */
#ifndef SLUICE_C_TYPES_H
#define SLUICE_C_TYPES_H

#include <sluice/export.hpp>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The result of a call: SLUICE_OK, or the kind of its failure, which tells a program what to do. The values are those
/// of `sluice::Code` (error.hpp), and do not change.
typedef enum sluice_code {
  SLUICE_OK = 0,
  SLUICE_BAD_ARGUMENT = 1,      ///< a value that can never work; nothing was changed
  SLUICE_MISMATCH = 2,          ///< the two ends of a channel disagree about the bytes or the contents of a slot
  SLUICE_MISUSE = 3,            ///< a call that the order of calls forbids, or a NULL handle
  SLUICE_TIMEOUT = 4,           ///< a limit of time was exceeded
  SLUICE_PEER_LOST = 5,         ///< the peer died, or ended with the channel open
  SLUICE_TRANSPORT = 6,         ///< a backend or a GPU's driver failed to move data
  SLUICE_UNSUPPORTED = 7,       ///< this build or machine cannot do it
  SLUICE_OUT_OF_RESOURCES = 8,  ///< memory, descriptors or queue entries ran out
  SLUICE_ABORTED = 9,           ///< `sluice_context_abort` was called, or a stream stopped or was freed
  SLUICE_CLOSED = 10            ///< a wait for an epoch that never comes: the peer has closed its end
} sluice_code;

/// The name of a code, as in logs and messages: "ok", "bad_argument", ...; "unknown" for any other value. Any thread.
SLUICE_EXPORT const char* sluice_code_name(int code);

/// One line about the last call of this thread that failed: the kind, what was attempted, the ranks, the tag and the
/// epoch. "" if none has failed yet. A call that succeeds leaves it as it is. Valid until the next failure in this
/// thread, and until the thread ends.
SLUICE_EXPORT const char* sluice_last_error(void);
/// The rank at the other end of the channel of that failure, for example the one that was lost; -1: it concerns no
/// channel, or nothing has failed.
SLUICE_EXPORT int sluice_last_error_peer(void);

/// The longest time for which a call may block the host, in nanoseconds. 0: the call looks once and does not wait.
typedef int64_t sluice_timeout;

#define SLUICE_SECOND ((sluice_timeout)1000000000)
/// No limit. A dead peer still ends the wait.
#define SLUICE_FOREVER INT64_MAX
/// The context's own timeout (`kContextTimeout` in types.hpp). Calls that need another one say so; any other negative
/// number is a SLUICE_BAD_ARGUMENT.
#define SLUICE_CONTEXT_TIMEOUT ((sluice_timeout)-1)

typedef struct sluice_context sluice_context;
typedef struct sluice_memory sluice_memory;
typedef struct sluice_host_stream sluice_host_stream;
typedef struct sluice_channel sluice_channel;
typedef struct sluice_sender sluice_sender;
typedef struct sluice_receiver sluice_receiver;
typedef struct sluice_wait_any sluice_wait_any;
typedef struct sluice_ticket sluice_ticket;
typedef struct sluice_plan sluice_plan;
typedef struct sluice_window sluice_window;
typedef struct sluice_target sluice_target;
typedef struct sluice_collective_window sluice_collective_window;

#ifdef __cplusplus
}
#endif

#endif
