// SPDX-License-Identifier: Apache-2.0
#include "apps/common/stream_collective.hpp"

#include <utility>

namespace apps {
namespace {

class SluiceCollective : public StreamCollective {
 public:
  SluiceCollective(sluice::Collective collective, sluice::Stream stream)
      : collective_(std::move(collective)), stream_(stream) {}

  void start() override { collective_.start(stream_); }
  void wait() override { collective_.wait(stream_); }
  std::string describe() const override { return collective_.describe(); }

 private:
  sluice::Collective collective_;
  sluice::Stream stream_;
};

// A collective in program order, of memory that a stream writes.
class StagedCollective : public StreamCollective {
 public:
  StagedCollective(sluice::Context context, std::unique_ptr<StreamCollective> collective, sluice::Stream stream)
      : context_(std::move(context)), collective_(std::move(collective)), stream_(stream) {}

  void start() override {
    context_.synchronize(stream_);
    collective_->start();
  }
  void wait() override { collective_->wait(); }

 private:
  sluice::Context context_;
  std::unique_ptr<StreamCollective> collective_;
  sluice::Stream stream_;
};

class NoCollective : public StreamCollective {
 public:
  void start() override {}
  void wait() override {}
};

// `make_sluice(context, stream)` makes Sluice's, `make_mpi(requests)` MPI's.
template <class MakeSluice, class MakeMpi>
std::unique_ptr<StreamCollective> open(const Session& session, sluice::Stream stream, const MakeSluice& make_sluice,
                                       const MakeMpi& make_mpi) {
  sluice::Context context = session.context;
  const Comm comm = session.options.comm;
  if (comm == Comm::none) return std::make_unique<NoCollective>();
  if (comm == Comm::sluice) return std::make_unique<SluiceCollective>(make_sluice(context, stream), stream);
  std::unique_ptr<StreamCollective> inner;
  if (is_mpi(comm))
    inner = make_mpi(comm == Comm::mpi ? MpiRequests::each_time : MpiRequests::persistent);
  else
    inner = std::make_unique<SluiceCollective>(make_sluice(context, sluice::Stream()), sluice::Stream());
  if (stream.kind() == sluice::Stream::Kind::program_order) return inner;
  return std::make_unique<StagedCollective>(std::move(context), std::move(inner), stream);
}

}  // namespace

std::unique_ptr<StreamCollective> open_sum(const Session& session, const sluice::Slice& numbers,
                                           sluice::Stream stream) {
  // Between two ranks `start` sends all that there is to send. Among more ranks, later rounds need a stream that goes
  // on while this one computes.
  const auto make_sluice = [&](sluice::Context& context, sluice::Stream on) {
    const bool on_thread = on.kind() == sluice::Stream::Kind::host && context.size() > 2;
    const auto progress = on_thread ? sluice::Progress::own_stream : sluice::Progress::in_wait;
    return sluice::allreduce(context, "stream sum", sluice::Op::sum, sluice::Number::float64, numbers, numbers,
                             {.progress = progress});
  };
  return open(session, stream, make_sluice, [&](MpiRequests requests) { return make_mpi_sum(numbers, requests); });
}

std::unique_ptr<StreamCollective> open_alltoall(const Session& session, const std::string& name,
                                                const GroupBlocks& blocks, sluice::Stream stream, bool has_others) {
  // A long block is sent once its receiver has started, which other work hides only on a stream that goes on meanwhile.
  const auto make_sluice = [&](sluice::Context& context, sluice::Stream on) {
    const bool on_thread = on.kind() == sluice::Stream::Kind::host && has_others;
    const auto progress = on_thread ? sluice::Progress::own_stream : sluice::Progress::in_wait;
    return sluice::alltoall(context, name, blocks.from, blocks.to, {.progress = progress});
  };
  return open(session, stream, make_sluice, [&](MpiRequests requests) { return make_mpi_alltoall(blocks, requests); });
}

}  // namespace apps
