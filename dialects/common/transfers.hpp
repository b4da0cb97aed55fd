// SPDX-License-Identifier: Apache-2.0
// A send and a receive: the two ends of a channel of depth 1, whose slot is the buffer of the program.
#pragma once

#include "dialects/common/layout.hpp"
#include "dialects/common/operation.hpp"

#include <sluice/channel.hpp>

#include <memory>

namespace sluice::stream_mpi {

// The first epoch of a channel is put while the ends are matched, has no bytes, and is not released. So the credit for
// an epoch is given by the start of the receive, and each message takes one put and one credit.

/// `packed`: the slot, if the elements of the buffer do not follow each other; else empty.
std::shared_ptr<Operation> make_send(Sender sender, Layout layout, Slice packed);
/// `bytes`: of the message.
std::shared_ptr<Operation> make_receive(Receiver receiver, Layout layout, Slice packed, std::size_t bytes);
/// One that does nothing, for MPI_PROC_NULL.
std::shared_ptr<Operation> make_nothing();

}  // namespace sluice::stream_mpi
