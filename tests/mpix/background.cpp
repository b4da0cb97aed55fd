// SPDX-License-Identifier: Apache-2.0
// Messages that are started and not waited for, while the program waits for something else by MPI.
#include "tests/await_answer.hpp"
#include "tests/mpix/cray_queue.hpp"
#include "tests/mpix/mpich_comm.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

/// One rank starts a message and waits for the answer alone, the other one's stream waits for the message.
/// `start_send`, `start_receive`: of a buffer; `wait`: for it, in the order of the stream and then by the host.
template <class StartSend, class StartReceive, class Wait>
void answer_steps(std::size_t ints, int unattended, StartSend start_send, StartReceive start_receive, Wait wait) {
  const int peer = 1 - world_rank();
  const bool waits = world_rank() != unattended;
  std::vector<int> buffer = poisoned(ints);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 0) fill(buffer, 0, step);
    if (waits) await_answer(peer);
    if (world_rank() == 0)
      start_send(buffer);
    else
      start_receive(buffer);
    if (!waits) {
      tell(peer);
      await_answer(peer);
    }
    wait();
    if (waits) tell(peer);
    expect_filled(buffer, 0, step, "a message that one rank does not wait for");
  }
}

constexpr std::size_t kLarge = 1 << 17;  // more than a lane holds
constexpr std::size_t kSmall = 4000;

}  // namespace

void run_cray_answered() {
  CrayQueue queue;
  const auto start_send = [&](std::vector<int>& buffer) {
    queue.send(buffer, 1);
    queue.start();
  };
  const auto start_receive = [&](std::vector<int>& buffer) {
    queue.receive(buffer, 0);
    queue.start();
  };
  const auto wait = [&] {
    queue.wait_on_stream();
    queue.wait();
  };
  for (const std::size_t ints : {kSmall, kLarge})
    for (const int unattended : {0, 1}) answer_steps(ints, unattended, start_send, start_receive, wait);
}

/// More small messages than a lane holds.
void run_cray_many_answered() {
  constexpr std::size_t kMany = 40;
  CrayQueue queue;
  const int peer = 1 - world_rank();
  std::vector<std::vector<int>> buffers(kMany, poisoned(kSmall));
  if (world_rank() == 1) await_answer(peer);
  for (std::size_t i = 0; i < kMany; ++i) {
    if (world_rank() == 0) fill(buffers[i], 0, static_cast<int>(i));
    if (world_rank() == 0) queue.send(buffers[i], peer);
    if (world_rank() == 1) queue.receive(buffers[i], peer);
    queue.start();
  }
  if (world_rank() == 0) {
    tell(peer);
    await_answer(peer);
  }
  queue.wait_on_stream();
  queue.wait();
  if (world_rank() == 1) tell(peer);
  for (std::size_t i = 0; i < kMany; ++i) expect_filled(buffers[i], 0, static_cast<int>(i), "one of many messages");
}

void run_cray_idle() {
  CrayQueue queue;
  const int peer = 1 - world_rank();
  std::vector<int> buffer = poisoned(kLarge);
  if (world_rank() == 0) {
    fill(buffer, 0, 1);
    queue.send(buffer, peer);
    queue.start();
    const double load = least_load_while_asleep();
    expect(load < kIdle, "a rank whose message waits for credit uses " + std::to_string(load) + " of a core");
    tell(peer);
  } else {
    await_answer(peer);
    queue.receive(buffer, peer);
    queue.start();
  }
  queue.wait_on_stream();
  queue.wait();
  expect_filled(buffer, 0, 1, "a message after a long time");
}

void run_mpich_answered() {
  StreamComm order;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto start_send = [&](std::vector<int>& buffer) { request = order.begin_send(buffer, 1); };
  const auto start_receive = [&](std::vector<int>& buffer) { request = order.begin_receive(buffer, 0); };
  const auto wait = [&] {
    order.wait_all({request});
    order.wait();
  };
  for (const std::size_t ints : {kSmall, kLarge})
    for (const int unattended : {0, 1}) answer_steps(ints, unattended, start_send, start_receive, wait);
}
