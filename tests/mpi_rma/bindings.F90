! SPDX-License-Identifier: Apache-2.0
! A program in Fortran that knows MPI alone, for each of its bindings: all epochs, and accesses of every kind.
#if defined(WITH_F08)
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif
program bindings
  use, intrinsic :: iso_c_binding
#if defined(WITH_F08)
  use mpi_f08
#elif !defined(WITH_MPIF)
  use mpi
#endif
  implicit none
#if defined(WITH_MPIF)
  include 'mpif.h'
#endif
  integer, parameter :: many = 100
  integer :: numbers(many), mine(many), expected(many), rank, ranks, right, left, i, ierr, wrong
  integer(kind=mpi_address_kind) :: bytes, value
  logical :: flag
  HANDLE(mpi_win) :: window

  wrong = 0
  call mpi_init(ierr)
  call mpi_comm_rank(mpi_comm_world, rank, ierr)
  call mpi_comm_size(mpi_comm_world, ranks, ierr)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  mine = [(rank * 1000 + i, i = 1, many)]
  expected = [(left * 1000 + i, i = 1, many)]
  numbers = 0
  bytes = 4 * many
  call mpi_win_create(numbers, bytes, 4, mpi_info_null, mpi_comm_world, window, ierr)
  call mpi_win_get_attr(window, mpi_win_size, value, flag, ierr)
  call expect(flag .and. value == bytes, 'an attribute')
  call fences()
  call posts()
  call mpi_win_free(window, ierr)
  call atomics()
  if (wrong == 0) print '(a)', 'right'
  call mpi_barrier(mpi_comm_world, ierr)
  call mpi_finalize(ierr)
  if (rank == 0) print '(a)', 'passed'

contains
  subroutine expect(fact, what)
    logical, intent(in) :: fact
    character(*), intent(in) :: what
    if (fact) return
    wrong = wrong + 1
    print '(a, i0, 2a)', 'wrong at rank ', rank, ': ', what
  end subroutine

  subroutine fences()
    integer :: got(many)
    integer(kind=mpi_address_kind), parameter :: at = 0
    call mpi_win_fence(0, window, ierr)
    call mpi_put(mine, many, mpi_integer, right, at, many, mpi_integer, window, ierr)
    call mpi_win_fence(0, window, ierr)
    call expect(all(numbers == expected), 'what was put between fences')
    call mpi_get(got, many, mpi_integer, right, at, many, mpi_integer, window, ierr)
    call mpi_win_fence(0, window, ierr)
    call expect(all(got == mine), 'what was got between fences')
#if defined(WITH_F08)
    block  ! every second number, and a count of the large kind
      integer(kind=mpi_count_kind), parameter :: half = many / 2
      numbers = 0
      call mpi_win_fence(0, window, ierr)
      call mpi_put(mine(1::2), many / 2, mpi_integer, right, at, many / 2, mpi_integer, window, ierr)
      call mpi_put(mine(:many / 2), half, mpi_integer, right, int(half, mpi_address_kind), half, mpi_integer, window, ierr)
      call mpi_win_fence(0, window, ierr)
      call expect(all(numbers == [expected(1::2), expected(:many / 2)]), 'a section of an array')
    end block
#endif
    call mpi_win_fence(mpi_mode_nosucceed, window, ierr)
  end subroutine

  subroutine posts()
    integer :: round, members, sent(1)
    integer(kind=mpi_address_kind) :: at
    logical :: done
    HANDLE(mpi_group) :: all_ranks, origins, targets
    call mpi_win_get_group(window, all_ranks, ierr)
    call mpi_group_size(all_ranks, members, ierr)
    call expect(members == ranks, 'the group')
    call mpi_group_incl(all_ranks, 1, [left], origins, ierr)
    call mpi_group_incl(all_ranks, 1, [right], targets, ierr)
    do round = 1, 20
      at = mod(round, 2)
      call mpi_win_post(origins, 0, window, ierr)
      call mpi_win_start(targets, 0, window, ierr)
      sent = round + rank
      call mpi_put(sent, 1, mpi_integer, right, at, 1, mpi_integer, window, ierr)
      call mpi_win_complete(window, ierr)
      done = .false.
      if (mod(round, 2) == 0) call mpi_win_wait(window, ierr)
      do while (mod(round, 2) == 1 .and. .not. done)
        call mpi_win_test(window, done, ierr)
      end do
      call expect(numbers(at + 1) == round + left, 'what was put before complete')
    end do
    call mpi_group_free(all_ranks, ierr)
    call mpi_group_free(origins, ierr)
    call mpi_group_free(targets, ierr)
  end subroutine

  ! All ranks change numbers of rank 0.
  subroutine atomics()
    integer, parameter :: rounds = 50, one = 1
    integer(kind=mpi_address_kind), parameter :: first = 0, second = 1, third = 2
    integer :: round, old, wanted, before, got(3)
    integer, pointer :: words(:)
    type(c_ptr) :: base
    HANDLE(mpi_win) :: shared
    HANDLE(mpi_request) :: request
    bytes = 12
    call mpi_win_allocate(bytes, 4, mpi_info_null, mpi_comm_world, base, shared, ierr)
    call c_f_pointer(base, words, [3])
    words = 0
    call mpi_barrier(mpi_comm_world, ierr)
    call mpi_win_lock_all(0, shared, ierr)
    do round = 1, rounds
      call mpi_fetch_and_op(one, old, mpi_integer, 0, first, mpi_sum, shared, ierr)
      call mpi_win_flush(0, shared, ierr)
      call mpi_accumulate(one, 1, mpi_integer, 0, second, 1, mpi_integer, mpi_sum, shared, ierr)
      call mpi_win_flush_local(0, shared, ierr)
      do
        call mpi_fetch_and_op(one, old, mpi_integer, 0, third, mpi_no_op, shared, ierr)
        call mpi_win_flush_all(shared, ierr)
        wanted = old + 1
        call mpi_compare_and_swap(wanted, old, before, mpi_integer, 0, third, shared, ierr)
        call mpi_win_flush_local_all(shared, ierr)
        if (before == old) exit
      end do
    end do
    call mpi_win_sync(shared, ierr)
    call mpi_win_unlock_all(shared, ierr)
    call mpi_barrier(mpi_comm_world, ierr)
    call mpi_win_lock(mpi_lock_shared, 0, 0, shared, ierr)
    call mpi_rget(got, 3, mpi_integer, 0, first, 3, mpi_integer, shared, request, ierr)
    call mpi_wait(request, mpi_status_ignore, ierr)
    call mpi_win_unlock(0, shared, ierr)
    call expect(all(got == rounds * ranks), 'sums of all ranks')
    call mpi_win_free(shared, ierr)
  end subroutine
end program
