/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, as plan.hpp has them. Read first: sluice.h. */
#ifndef SLUICE_C_PLAN_H
#define SLUICE_C_PLAN_H

#include <sluice/c/stream.h>
#include <sluice/c/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a plan without channels: many channels that are driven together, by as few stream operations as possible.
SLUICE_EXPORT sluice_code sluice_plan_create(sluice_context* context, sluice_plan** plan);
/// Adds a channel, which stays the caller's and must outlive the plan.
/// @return also SLUICE_MISUSE after the commit, or if the channel is in a plan, closed, or of another rank
SLUICE_EXPORT sluice_code sluice_plan_add_sender(sluice_plan* plan, sluice_sender* sender);
SLUICE_EXPORT sluice_code sluice_plan_add_receiver(sluice_plan* plan, sluice_receiver* receiver);
/// Blocks the host until all channels are connected, and fixes the kind of stream. Only the plan drives them from then
/// on. A commit that failed may be tried again.
/// @return also SLUICE_TIMEOUT, SLUICE_MISUSE, SLUICE_UNSUPPORTED or SLUICE_OUT_OF_RESOURCES (`Plan::commit`); the
///   failure of a channel
SLUICE_EXPORT sluice_code sluice_plan_commit(sluice_plan* plan, sluice_stream stream, sluice_timeout timeout);

/// On `stream`, waits until the next source slot of every sender may be overwritten.
/// @return also see "Errors of verbs" in plan.hpp, here and below
SLUICE_EXPORT sluice_code sluice_plan_acquire(sluice_plan* plan, sluice_stream stream);
/// Enqueues the next epoch of every sender.
SLUICE_EXPORT sluice_code sluice_plan_start(sluice_plan* plan, sluice_stream stream);
/// Enqueues a wait for the next epoch of every receiver.
SLUICE_EXPORT sluice_code sluice_plan_wait(sluice_plan* plan, sluice_stream stream);
/// Enqueues the release of the oldest epoch of every receiver that was waited for.
SLUICE_EXPORT sluice_code sluice_plan_release(sluice_plan* plan, sluice_stream stream);

/// The slot of the sender's next epoch, which `sluice_plan_acquire` makes free.
/// @return also SLUICE_MISUSE if the sender is not in this plan
SLUICE_EXPORT sluice_code sluice_plan_sender_slot(const sluice_plan* plan, const sluice_sender* sender, void** slot);
/// The slot of the receiver's last epoch that was waited for.
/// @return also SLUICE_MISUSE if the receiver is not in this plan, or before the first wait
SLUICE_EXPORT sluice_code sluice_plan_receiver_slot(const sluice_plan* plan, const sluice_receiver* receiver,
                                                    void** slot);
/// Text for people. Valid until the next description of anything in this thread.
SLUICE_EXPORT sluice_code sluice_plan_describe(const sluice_plan* plan, const char** text);
/// Frees the plan; its channels can only be closed then, or are free again if it was not committed.
SLUICE_EXPORT sluice_code sluice_plan_free(sluice_plan** plan);

#ifdef __cplusplus
}
#endif

#endif
