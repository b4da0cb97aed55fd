// SPDX-License-Identifier: Apache-2.0
// Fences, posts, locks and requests.
#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

int right() { return (world_rank() + 1) % world_size(); }
int left() { return (world_rank() + world_size() - 1) % world_size(); }

MPI_Group group_of(std::vector<int> ranks) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
  MPI_Group_free(&world);
  return group;
}

}  // namespace

void run_fences() {
  for (const bool allocate : {true, false}) {
    Shared<int> shared(2, allocate);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, shared.window);
    for (int i = 1; i <= 50; ++i) {
      MPI_Put(&i, 1, MPI_INT, right(), i % 2, 1, MPI_INT, shared.window);
      MPI_Win_fence(0, shared.window);
      expect_equal(shared.memory[i % 2], i, "what the left rank has put before the fence");
      MPI_Win_fence(0, shared.window);
    }
  }
}

/// So many accesses that the library has to make room for them, again and again.
void run_flushes() {
  constexpr int kPerAccess = 1024;
  constexpr int kAccesses = 700;
  for (const bool allocate : {true, false}) {
    Shared<int> shared(kPerAccess, allocate);
    for (int i = 0; i < kPerAccess; ++i) shared.memory[i] = world_rank() * kPerAccess + i;
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<int> got(kPerAccess);
    MPI_Win_lock_all(0, shared.window);
    for (int time = 0; time < kAccesses; ++time) {
      std::fill(got.begin(), got.end(), -1);
      MPI_Get(got.data(), kPerAccess, MPI_INT, right(), 0, kPerAccess, MPI_INT, shared.window);
      MPI_Win_flush_local(right(), shared.window);
      expect_equal(got[0], right() * kPerAccess, "the first that was got before the flush");
      expect_equal(got[kPerAccess - 1], (right() + 1) * kPerAccess - 1, "the last that was got before the flush");
    }
    MPI_Win_unlock_all(shared.window);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

void run_posts() {
  for (const bool allocate : {true, false}) {
    Shared<int> shared(2, allocate);
    MPI_Group origins = group_of({left()});
    MPI_Group targets = group_of({right()});
    for (int i = 1; i <= 50; ++i) {
      MPI_Win_post(origins, 0, shared.window);
      MPI_Win_start(targets, 0, shared.window);
      MPI_Put(&i, 1, MPI_INT, right(), 0, 1, MPI_INT, shared.window);
      MPI_Win_complete(shared.window);
      if (i % 2 == 0) {
        MPI_Win_wait(shared.window);
      } else {
        for (int done = 0; done == 0;) MPI_Win_test(shared.window, &done);
      }
      expect_equal(shared.memory[0], i, "what the left rank has put between start and complete");
    }
    MPI_Group_free(&origins);
    MPI_Group_free(&targets);
  }
}

void run_locks() {
  Shared<long> shared(1);
  constexpr int kLocks = 200;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < kLocks; ++i) {
    long value = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared.window);
    MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
    MPI_Win_flush(0, shared.window);
    std::this_thread::yield();  // so that others try to lock meanwhile
    ++value;
    MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
    MPI_Win_unlock(0, shared.window);
    if (i % 10 == 0) {  // a reader beside writers
      MPI_Win_lock_all(0, shared.window);
      long first = 0;
      long second = 0;
      MPI_Get(&first, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
      MPI_Win_flush_all(shared.window);
      MPI_Get(&second, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
      MPI_Win_unlock_all(shared.window);
      expect_equal(second, first, "a value under lock_all, read twice");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, shared.window);
  long value = 0;
  MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
  MPI_Win_unlock(0, shared.window);
  expect_equal(value, kLocks * world_size(), "what all ranks have counted under a lock");
}

namespace {

/// One of two ranks locks the memory of `owner` first, and the other one gets the lock once it is free.
void check_exclusion(Shared<long>& shared, int owner, int first_kind, int second_kind) {
  const long begun = 1;
  const long ended = 2;
  long seen = 0;
  for (int first = 0; first < 2; ++first) {
    if (world_rank() == first) {
      MPI_Win_lock(first_kind, owner, 0, shared.window);
      MPI_Put(&begun, 1, MPI_LONG, owner, 0, 1, MPI_LONG, shared.window);
      MPI_Win_flush(owner, shared.window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == first) {
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // the other rank tries meanwhile
      MPI_Put(&ended, 1, MPI_LONG, owner, 0, 1, MPI_LONG, shared.window);
      MPI_Win_unlock(owner, shared.window);
    } else {
      MPI_Win_lock(second_kind, owner, 0, shared.window);
      MPI_Get(&seen, 1, MPI_LONG, owner, 0, 1, MPI_LONG, shared.window);
      MPI_Win_unlock(owner, shared.window);
      expect_equal(seen, ended, "what was put under the lock before");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

void check_errors_of_locks(Shared<long>& shared) {
  const MPI_Win window = shared.window;
  const int to = right();
  const long value = 7;
  const auto refused = [](int code, const char* what) { expect_equal(class_of(code), MPI_ERR_RMA_SYNC, what); };
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  for (const int assertion : {0, MPI_MODE_NOCHECK}) {
    MPI_Win_lock(MPI_LOCK_SHARED, to, assertion, window);
    refused(MPI_Win_lock(MPI_LOCK_SHARED, to, assertion, window), "a lock of what is locked");
    refused(MPI_Win_unlock(left() == to ? world_rank() : left(), window), "an unlock of another rank");
    expect_equal(MPI_Put(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, window), MPI_SUCCESS, "a put to no rank");
    expect_equal(MPI_Win_unlock(to, window), MPI_SUCCESS, "an unlock after errors");
    refused(MPI_Win_unlock(to, window), "an unlock of what is not locked any more");
    refused(MPI_Put(&value, 1, MPI_LONG, to, 0, 1, MPI_LONG, window), "a put after the unlock");
  }
  MPI_Win_fence(0, window);
  MPI_Put(&value, 1, MPI_LONG, to, 0, 1, MPI_LONG, window);
  refused(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window), "a lock after an access between fences");
  MPI_Win_fence(0, window);
  expect_equal(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window), MPI_SUCCESS, "a lock after a fence");
  MPI_Win_unlock(to, window);
  refused(MPI_Put(&value, 1, MPI_LONG, to, 0, 1, MPI_LONG, window), "a put after the lock has ended the fence's epoch");
  MPI_Win_set_errhandler(window, MPI_ERRORS_ARE_FATAL);
}

/// An unlock completes the gets of its epoch, again and again.
void check_unlock_completes(bool allocate) {
  constexpr int kCount = 512;  // of more than a mailbox takes
  Shared<long> shared(kCount, allocate);
  std::fill_n(shared.memory, kCount, world_rank() + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 5; ++i) {
    std::vector<long> got(kCount);
    MPI_Win_lock(MPI_LOCK_SHARED, right(), i == 3 ? MPI_MODE_NOCHECK : 0, shared.window);
    MPI_Get(got.data(), kCount, MPI_LONG, right(), 0, kCount, MPI_LONG, shared.window);
    MPI_Win_unlock(right(), shared.window);
    expect_equal(got.front(), right() + 1, "the first number that was got under a lock");
    expect_equal(got.back(), right() + 1, "the last number that was got under a lock");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The first access to a window may be to no rank.
void check_first_access_to_no_rank() {
  const Shared<long> shared(1);
  const long value = 7;
  MPI_Win_lock_all(0, shared.window);
  MPI_Put(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, shared.window);
  MPI_Win_unlock_all(shared.window);
}

}  // namespace

/// Two ranks lock, access and unlock again and again, in every way.
void run_short_locks() {
  for (const bool allocate : {true, false}) check_unlock_completes(allocate);
  check_first_access_to_no_rank();
  Shared<long> shared(1);
  long value = 0;
  for (const bool counted : {false, true}) {
    if (counted) {  // from now on, at rank 0
      MPI_Win_lock_all(0, shared.window);
      MPI_Win_unlock_all(shared.window);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    for (const int owner : {0, 1}) {
      for (int i = 0; i < 2; ++i) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, owner, 0, shared.window);
        MPI_Get(&value, 1, MPI_LONG, owner, 0, 1, MPI_LONG, shared.window);
        MPI_Win_unlock(owner, shared.window);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      check_exclusion(shared, owner, MPI_LOCK_EXCLUSIVE, MPI_LOCK_EXCLUSIVE);
      check_exclusion(shared, owner, MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED);
      check_exclusion(shared, owner, MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE);
    }
  }
  check_errors_of_locks(shared);
}

/// Rank 1 holds a lock, and sends a long message to rank 0, which waits for that lock: MPI has to go on there.
void run_progress() {
  Shared<int> shared(1);
  std::vector<int> message(1 << 20, 7);
  MPI_Request request = MPI_REQUEST_NULL;
  if (world_rank() == 0) MPI_Irecv(message.data(), 1 << 20, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
  if (world_rank() == 1) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    MPI_Send(message.data(), 1 << 20, MPI_INT, 0, 0, MPI_COMM_WORLD);
    MPI_Win_unlock(0, shared.window);
  } else if (world_rank() == 0) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared.window);
    MPI_Win_unlock(0, shared.window);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

namespace {

constexpr int kLong = 1 << 20;

/// Rank 0 receives a long message, and repeats `poll(window)` until that returns true: once rank 1, which sends the
/// message first, has called `end`.
void poll_beside_a_message(MPI_Win window, const std::function<bool(MPI_Win)>& poll, const std::function<void()>& end) {
  std::vector<int> message(kLong, world_rank());
  MPI_Request request = MPI_REQUEST_NULL;
  if (world_rank() == 0) MPI_Irecv(message.data(), kLong, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    while (!poll(window)) {
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect_equal(message.back(), 1, "the end of a message that came while its receiver polled");
  } else {
    MPI_Send(message.data(), kLong, MPI_INT, 0, 0, MPI_COMM_WORLD);
    end();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Waits for a number of a rank to be 1, by each call that a program may repeat. Two ranks.
void check_polling(bool allocate, int owner) {
  const auto read = [owner](MPI_Win window, long& value) {
    MPI_Fetch_and_op(nullptr, &value, MPI_LONG, owner, 0, MPI_NO_OP, window);
  };
  const auto in_epoch = [&](auto complete) {
    return [=](MPI_Win window) {
      long value = 0;
      read(window, value);
      complete(window);
      return value == 1;
    };
  };
  const auto by_request = [owner](MPI_Win window) {
    long value = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Rget(&value, 1, MPI_LONG, owner, 0, 1, MPI_LONG, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return value == 1;
  };
  const auto by_lock = [owner, read](MPI_Win window) {
    long value = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, owner, 0, window);
    read(window, value);
    MPI_Win_unlock(owner, window);
    return value == 1;
  };
  const auto by_lock_all = [read](MPI_Win window) {
    long value = 0;
    MPI_Win_lock_all(0, window);
    read(window, value);
    MPI_Win_unlock_all(window);
    return value == 1;
  };
  struct Way {
    std::function<bool(MPI_Win)> poll;
    bool has_epoch;
  };
  std::vector<Way> ways{
      {in_epoch([owner](MPI_Win window) { MPI_Win_flush(owner, window); }), false},
      {in_epoch([](MPI_Win window) { MPI_Win_flush_all(window); }), false},
      {by_request, false},
      {by_lock, true},
      {by_lock_all, true},
  };
  for (const Way& way : ways) {
    const Shared<long> shared(1, allocate);
    const bool locks = world_rank() == 0 && !way.has_epoch;
    if (locks) MPI_Win_lock_all(0, shared.window);
    poll_beside_a_message(shared.window, way.poll, [&] {
      const long one = 1;
      MPI_Win_lock(MPI_LOCK_SHARED, owner, 0, shared.window);
      MPI_Accumulate(&one, 1, MPI_LONG, owner, 0, 1, MPI_LONG, MPI_SUM, shared.window);
      MPI_Win_unlock(owner, shared.window);
    });
    if (locks) MPI_Win_unlock_all(shared.window);
  }
}

void check_polling_by_test() {
  const Shared<long> shared(1);
  MPI_Group peer = group_of({1 - world_rank()});
  if (world_rank() == 0) MPI_Win_post(peer, 0, shared.window);
  if (world_rank() == 1) MPI_Win_start(peer, 0, shared.window);
  const auto poll = [](MPI_Win window) {
    int done = 0;
    MPI_Win_test(window, &done);
    return done != 0;
  };
  poll_beside_a_message(shared.window, poll, [&] { MPI_Win_complete(shared.window); });
  MPI_Group_free(&peer);
}

/// Rank 0 loads from its own memory.
void check_polling_by_sync() {
  const Shared<long> shared(1);
  MPI_Win_lock_all(0, shared.window);
  const auto poll = [&shared](MPI_Win window) {
    MPI_Win_sync(window);
    return std::atomic_ref(*shared.memory).load() == 1;
  };
  poll_beside_a_message(shared.window, poll, [&] {
    const long one = 1;
    MPI_Put(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, shared.window);
    MPI_Win_flush(0, shared.window);
  });
  MPI_Win_unlock_all(shared.window);
}

}  // namespace

/// MPI has to go on while a rank polls a window.
void run_polling() {
  check_polling_by_test();
  check_polling_by_sync();
  for (const bool allocate : {true, false})
    for (const int owner : {0, 1}) check_polling(allocate, owner);
}

void run_requests() {
  constexpr int kCount = 5000;
  Shared<int> shared(kCount);
  std::vector<int> source(kCount);
  std::iota(source.begin(), source.end(), world_rank());
  std::vector<int> back(kCount);
  MPI_Win_lock_all(0, shared.window);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Rput(source.data(), kCount, MPI_INT, right(), 0, kCount, MPI_INT, shared.window, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_flush(right(), shared.window);
  MPI_Rget(back.data(), kCount, MPI_INT, right(), 0, kCount, MPI_INT, shared.window, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(back == source, "what a get with a request has read when the request is complete");
  MPI_Request both[2];
  MPI_Raccumulate(source.data(), kCount, MPI_INT, right(), 0, kCount, MPI_INT, MPI_SUM, shared.window, &both[0]);
  MPI_Rget_accumulate(source.data(), kCount, MPI_INT, back.data(), kCount, MPI_INT, right(), 0, kCount, MPI_INT,
                      MPI_SUM, shared.window, &both[1]);
  MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
  MPI_Win_unlock_all(shared.window);
  for (int i = 0; i < kCount; ++i)
    expect_equal(back[static_cast<std::size_t>(i)], 2 * source[static_cast<std::size_t>(i)], "before the second sum");
}
