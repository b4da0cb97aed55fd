// SPDX-License-Identifier: Apache-2.0
// The programs of wrong.cpp without their mistakes, and others that only look as if they had one.
#include <array>

#include "tests/races/program.hpp"

namespace {

using sluice::Context, sluice::HostStream, sluice::Slice, sluice::Stream;

constexpr std::uint64_t kEpochs = 20;

/// A callable behind the acquire writes the slot.
void callables(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  std::uint64_t all = 0;
  for (std::uint64_t n = 1; n <= kEpochs; ++n) {
    if (ctx.rank() == 0) {
      thread.run([n, slot = ends.out.acquire(stream)] { fill(slot, n); });
      ends.out.put(stream);
    } else {
      thread.run([&all, slot = ends.in.wait(stream)] { all += sum(slot); });
      ends.in.release(stream);
    }
  }
  ctx.synchronize(stream);
  keep(all);
}

/// The host writes and reads, after it has waited for the stream.
void synchronize(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  for (std::uint64_t n = 1; n <= kEpochs; ++n) {
    const Slice slot = ctx.rank() == 0 ? ends.out.acquire(stream) : ends.in.wait(stream);
    thread.synchronize();
    if (ctx.rank() == 0) {
      fill(slot, n);
      ends.out.put(stream);
    } else {
      keep(sum(slot));
      ends.in.release(stream);
    }
  }
  ctx.synchronize(stream);
}

/// Two slots at each end; the host alone, with waits that have a limit.
void program_order(Context& ctx) {
  const Stream order;
  Ends ends(ctx, {.depth = 2});
  for (std::uint64_t n = 1; n <= kEpochs;) {
    if (ctx.rank() == 0) {
      fill(ends.out.acquire(order), n++);
      ends.out.put(order);
    } else if (const auto slot = ends.in.wait_for(std::chrono::milliseconds(10))) {
      keep(sum(*slot));
      ends.in.release(order);
      ++n;
    }
  }
  if (ctx.rank() == 0) ends.out.drain();
}

/// An event orders a callable of one stream behind one of the other.
void event(Context& ctx) {
  HostStream first, second;
  std::uint64_t number = 0;
  for (std::uint64_t n = 1; n <= kEpochs; ++n) {
    first.run([&number, n] { number = n; });
    second.wait(first.record());
    second.run([&] { keep(number); });
    first.wait(second.record());
  }
  ctx.synchronize(Stream::host(first));
  ctx.synchronize(Stream::host(second));
}

/// Nothing else writes or reads the slots of a plan between its verbs.
void plan(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  sluice::Plan plan = ctx.plan();
  const auto start = [&](std::uint64_t n) {
    plan.acquire(stream);
    thread.run([n, slot = plan.slot(ends.out)] { fill(slot, n); });
    plan.start(stream);
  };
  const auto take = [&] {
    plan.wait(stream);
    thread.run([slot = plan.slot(ends.in)] { keep(sum(slot)); });
    plan.release(stream);
  };
  if (ctx.rank() == 0) {
    plan.add(ends.out).commit(stream);
  } else {
    plan.add(ends.in).commit(stream);
  }
  for (std::uint64_t n = 1; n <= kEpochs; ++n) ctx.rank() == 0 ? start(n) : take();
  ctx.synchronize(stream);
}

/// The memory is the program's again after a drain, and after closing.
void drain_and_close(Context& ctx) {
  const Stream order;
  sluice::Memory memory = ctx.allocate(kBytes);
  const Slice slot = memory.slice(0, kBytes);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    fill(slot, n);
    if (ctx.rank() == 0) {
      sluice::Sender out = ctx.sender(1, kTag, slot);
      out.put(order);
      out.drain();
      fill(slot, 0);
      out.put(order);
    } else {
      sluice::Receiver in = ctx.receiver(0, kTag, slot);
      for (int i = 0; i < 2; ++i) {
        in.wait(order);
        keep(sum(slot));
        in.release(order);
      }
    }
  }
}

/// Sends bytes back from the slot in which they have arrived.
void forward_in_place(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  const int other = 1 - ctx.rank();
  sluice::Memory memory = ctx.allocate(2 * kBytes);
  const Slice there = memory.slice(0, kBytes), back = memory.slice(ctx.rank() == 0 ? kBytes : 0, kBytes);
  sluice::Sender out = ctx.sender(other, kTag, there);
  sluice::Receiver in = ctx.receiver(other, kTag, back);
  for (std::uint64_t n = 1; n <= kEpochs; ++n) {
    if (ctx.rank() == 0) {
      thread.run([n, slot = out.acquire(stream)] { fill(slot, n); });
      out.put(stream);
      thread.run([slot = in.wait(stream)] { keep(sum(slot)); });
    } else {
      in.wait(stream);
      out.put(stream);
      out.acquire(stream);
    }
    in.release(stream);
  }
  ctx.synchronize(stream);
}

/// A row of the host, which a callable copies before the host goes on.
void host_row(Context& ctx) {
  HostStream thread({.name = "shared"});
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  std::array<std::uint64_t, kWords> row{};
  std::uint64_t* const at = row.data();
  for (std::uint64_t n = 1; n <= kEpochs; ++n) {
    if (ctx.rank() == 0) {
      row.fill(n);
      thread.run([at, slot = ends.out.acquire(stream)] { std::memcpy(slot.data(), at, kBytes); });
      ends.out.put(stream);
    } else {
      thread.run([at, slot = ends.in.wait(stream)] { std::memcpy(at, slot.data(), kBytes); });
      ends.in.release(stream);
    }
    thread.synchronize();
    keep(row.back());
  }
}

constexpr Program kPrograms[] = {
    {"callables", callables},
    {"synchronize", synchronize},
    {"program_order", program_order},
    {"event", event},
    {"plan", plan},
    {"drain_and_close", drain_and_close},
    {"forward_in_place", forward_in_place},
    {"host_row", host_row},
};

}  // namespace

int main(int argc, char** argv) { return run_named(argc, argv, kPrograms); }
