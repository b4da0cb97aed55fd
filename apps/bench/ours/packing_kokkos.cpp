// SPDX-License-Identifier: Apache-2.0
// Sluice's contenders that pack, by the channels of sluice/kokkos.hpp.
#include "apps/bench/ours/packing.hpp"
#include "apps/bench/ours/packing_views.hpp"

#include <sluice/kokkos/channel.hpp>

#include <memory>
#include <string>
#include <vector>

namespace bench {
namespace {

template <class Exec>
class Column : public ColumnPingPong<Exec> {
 public:
  Column(const Workload& workload, const Exec& exec)
      : ColumnPingPong<Exec>(workload, exec),
        out_(this->workload_.context, sluice::kokkos::Queue<Exec>(exec), workload.peer, workload.tag,
             this->columns_.out, {.depth = workload.depth}),
        in_(this->workload_.context, sluice::kokkos::Queue<Exec>(exec), workload.peer, workload.tag, this->columns_.in,
            {.depth = workload.depth}) {}

  std::string describe() { return out_.channel().describe(); }

 private:
  void send() override { out_.put(); }
  void receive() override { in_.wait(); }
  void release() override { in_.release(); }

  using View = typename Columns<Exec>::Column;
  sluice::kokkos::ViewSender<Exec, View> out_;
  sluice::kokkos::ViewReceiver<Exec, View> in_;
};

template <class Exec>
class Faces : public FaceExchange<Exec> {
 public:
  Faces(const Workload& workload, const Exec& exec) : FaceExchange<Exec>(workload, exec) {
    out_.reserve(kCubeFaces);
    in_.reserve(kCubeFaces);
    const sluice::ChannelOptions options{.depth = workload.depth};
    const sluice::kokkos::Queue<Exec> queue(exec);
    sluice::Context& context = this->workload_.context;
    for (std::size_t k = 0; k < kCubeFaces; ++k) {
      const Neighbour ranks = neighbour(context, static_cast<int>(k));
      const sluice::Tag tag = workload.tag + static_cast<sluice::Tag>(k);
      out_.emplace_back(context, queue, ranks.to, tag, this->cube_.faces[k], options);
      in_.emplace_back(context, queue, ranks.from, tag, this->cube_.ghosts[k], options);
    }
  }

  std::string describe() {
    std::string text;
    for (auto& out : out_) text += out.channel().describe() + "\n";
    return text;
  }

 private:
  void move() override {
    for (auto& out : out_) out.put();
    for (auto& in : in_) in.wait();
  }
  void release() override {
    for (auto& in : in_) in.release();
  }

  std::vector<sluice::kokkos::ViewSender<Exec, typename Cube<Exec>::Face>> out_;
  std::vector<sluice::kokkos::ViewReceiver<Exec, typename Cube<Exec>::Ghosts>> in_;
};

}  // namespace

std::string why_no_packing() { return {}; }

std::shared_ptr<void> start_kokkos(const std::string& bench) {
  if (bench != "packing") return nullptr;
  return std::make_shared<Kokkos::ScopeGuard>(apps::kokkos_settings());
}

Ours make_column_ping_pong(const Workload& workload) {
  return apps::with_host_space([&](const auto& exec) { return described(make_checked<Column>(workload, exec)); });
}

Ours make_face_exchange(const Workload& workload) {
  return apps::with_host_space([&](const auto& exec) { return described(make_checked<Faces>(workload, exec)); });
}

}  // namespace bench
