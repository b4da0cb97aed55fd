// SPDX-License-Identifier: Apache-2.0
// MPI's contenders that pack: by kernels, as programs do by hand (Packed...), and by datatypes, so that MPI packs
// (Typed...).
#include "apps/bench/ours/packing.hpp"
#include "apps/bench/ours/packing_views.hpp"
#include "apps/bench/rivals/requests_mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <array>
#include <memory>

namespace bench {
namespace {

constexpr int kTag = 0;

/// An MPI datatype: `count` blocks of `length` elements of type `of`; the blocks begin `stride` elements apart.
class VectorType {
 public:
  VectorType(int count, int length, int stride, MPI_Datatype of) {
    MPI_Type_vector(count, length, stride, of, &type_);
    MPI_Type_commit(&type_);
  }
  ~VectorType() { MPI_Type_free(&type_); }
  VectorType(const VectorType&) = delete;
  VectorType& operator=(const VectorType&) = delete;

  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

template <class To, class From>
struct CopyRow {
  To to;
  From from;
  KOKKOS_FUNCTION void operator()(int i) const {
    if constexpr (To::rank() == 1) {
      to(i) = from(i);
    } else {
      for (int j = 0; j < static_cast<int>(to.extent(1)); ++j) to(i, j) = from(i, j);
    }
  }
};

/// Enqueues a kernel that packs or unpacks.
template <class Exec, class To, class From>
void copy(const Exec& exec, const char* label, const To& to, const From& from) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(exec, 0, static_cast<int>(to.extent(0))),
                       CopyRow<To, From>{to, from});
}

template <class Exec>
class PackedColumn : public ColumnPingPong<Exec> {
 public:
  PackedColumn(const Workload& workload, const Exec& exec)
      : ColumnPingPong<Exec>(workload, exec), packed_out_("sluice-bench: packed", this->columns_.out.extent(0)),
        packed_in_("sluice-bench: received", this->columns_.in.extent(0)) {
    send_.add_send(packed_out_.data(), this->columns_.items(), MPI_INT, workload.peer, kTag, world_.communicator());
    receive_.add_receive(packed_in_.data(), this->columns_.items(), MPI_INT, workload.peer, kTag,
                         world_.communicator());
  }

 private:
  void send() override {
    copy(this->exec_, "sluice-bench: pack", packed_out_, this->columns_.out);
    this->exec_.fence("sluice-bench: packed");
    send_.run();
  }
  void receive() override {
    receive_.run();
    copy(this->exec_, "sluice-bench: unpack", this->columns_.in, packed_in_);
  }

  apps::MpiWorld world_;
  Kokkos::View<int*, typename Exec::memory_space> packed_out_;
  Kokkos::View<int*, typename Exec::memory_space> packed_in_;
  Requests send_;
  Requests receive_;
};

template <class Exec>
class TypedColumn : public ColumnPingPong<Exec> {
 public:
  TypedColumn(const Workload& workload, const Exec& exec)
      : ColumnPingPong<Exec>(workload, exec), type_(this->columns_.items(), 1, Columns<Exec>::kStride, MPI_INT) {
    send_.add_send(this->columns_.out.data(), 1, type_.get(), workload.peer, kTag, world_.communicator());
    receive_.add_receive(this->columns_.in.data(), 1, type_.get(), workload.peer, kTag, world_.communicator());
  }

 private:
  void send() override { send_.run(); }
  void receive() override { receive_.run(); }

  apps::MpiWorld world_;
  VectorType type_;
  Requests send_;
  Requests receive_;
};

template <class Exec>
class PackedFaces : public FaceExchange<Exec> {
 public:
  PackedFaces(const Workload& workload, const Exec& exec) : FaceExchange<Exec>(workload, exec) {
    for (std::size_t k = 0; k < kCubeFaces; ++k) {
      packed_[k] = Kokkos::View<double**, typename Exec::memory_space>("sluice-bench: packed", kCubeSide, kCubeSide);
      const int cells = kCubeSide * kCubeSide;
      const int tag = static_cast<int>(k);
      const Neighbour ranks = neighbour(workload.context, tag);
      requests_.add_receive(this->cube_.ghosts[k].data(), cells, MPI_DOUBLE, ranks.from, tag, world_.communicator());
      requests_.add_send(packed_[k].data(), cells, MPI_DOUBLE, ranks.to, tag, world_.communicator());
    }
  }

 private:
  void move() override {
    for (std::size_t k = 0; k < kCubeFaces; ++k)
      copy(this->exec_, "sluice-bench: pack", packed_[k], this->cube_.faces[k]);
    this->exec_.fence("sluice-bench: packed");
    requests_.run();
  }

  apps::MpiWorld world_;
  std::array<typename Cube<Exec>::Ghosts, kCubeFaces> packed_;
  Requests requests_;
};

template <class Exec>
class TypedFaces : public FaceExchange<Exec> {
 public:
  TypedFaces(const Workload& workload, const Exec& exec) : FaceExchange<Exec>(workload, exec) {
    for (std::size_t k = 0; k < kCubeFaces; ++k) {
      const int tag = static_cast<int>(k);
      const Neighbour ranks = neighbour(workload.context, tag);
      requests_.add_receive(this->cube_.ghosts[k].data(), kCubeSide * kCubeSide, MPI_DOUBLE, ranks.from, tag,
                            world_.communicator());
      requests_.add_send(this->cube_.faces[k].data(), 1, types_[k / 2].get(), ranks.to, tag, world_.communicator());
    }
  }

 private:
  static constexpr int kPlane = kCubeSide * kCubeSide;

  void move() override { requests_.run(); }

  apps::MpiWorld world_;
  // The faces across the first, the second and the third dimension of the cube.
  std::array<VectorType, 3> types_{{{1, kPlane, kPlane, MPI_DOUBLE},
                                    {kCubeSide, kCubeSide, kPlane, MPI_DOUBLE},
                                    {kPlane, 1, kCubeSide, MPI_DOUBLE}}};
  Requests requests_;
};

template <template <class Exec> class Packed, template <class Exec> class Typed>
std::unique_ptr<Contender> make(MpiPacking packing, const Workload& workload) {
  return apps::with_host_space([&](const auto& exec) -> std::unique_ptr<Contender> {
    if (packing == MpiPacking::by_kokkos) return make_checked<Packed>(workload, exec);
    return make_checked<Typed>(workload, exec);
  });
}

}  // namespace

std::unique_ptr<Contender> make_mpi_column_ping_pong(MpiPacking packing, const Workload& workload) {
  return make<PackedColumn, TypedColumn>(packing, workload);
}
std::unique_ptr<Contender> make_mpi_face_exchange(MpiPacking packing, const Workload& workload) {
  return make<PackedFaces, TypedFaces>(packing, workload);
}

}  // namespace bench
