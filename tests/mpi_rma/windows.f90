! SPDX-License-Identifier: Apache-2.0
! A program in Fortran that knows MPI alone: epochs, accesses, attributes, and a window of memory that is attached.
program windows
  use mpi
  implicit none
  integer, parameter :: many = 100
  integer :: numbers(many), mine(many), later(many), expected(many)
  integer :: rank, ranks, window, dynamic, right, left, i, old, ierr
  integer, parameter :: one = 1
  integer(kind=mpi_address_kind) :: at, there, bytes, value
  logical :: flag
  call mpi_init(ierr)
  call mpi_comm_rank(mpi_comm_world, rank, ierr)
  call mpi_comm_size(mpi_comm_world, ranks, ierr)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  mine = [(rank * 1000 + i, i = 1, many)]
  expected = [(left * 1000 + i, i = 1, many)]
  numbers = 0
  later = 0
  bytes = 4 * many

  call mpi_win_create(numbers, bytes, 4, mpi_info_null, mpi_comm_world, window, ierr)
  call expect_attribute(mpi_win_size, bytes)
  call expect_attribute(mpi_win_disp_unit, 4_mpi_address_kind)
  call expect_attribute(mpi_win_create_flavor, int(mpi_win_flavor_create, mpi_address_kind))
  call mpi_get_address(numbers, at, ierr)
  call expect_attribute(mpi_win_base, at)
  at = 0
  call mpi_win_fence(0, window, ierr)
  call mpi_put(mine, many, mpi_integer, right, at, many, mpi_integer, window, ierr)
  call mpi_win_fence(mpi_mode_nosucceed, window, ierr)
  if (any(numbers /= expected)) print '(a)', 'wrong numbers after a put'
  numbers = 0
  call mpi_barrier(mpi_comm_world, ierr)
  call mpi_win_lock(mpi_lock_exclusive, 0, 0, window, ierr)
  call mpi_fetch_and_op(one, old, mpi_integer, 0, at, mpi_sum, window, ierr)
  call mpi_win_unlock(0, window, ierr)
  call mpi_barrier(mpi_comm_world, ierr)
  if (rank == 0 .and. numbers(1) /= ranks) print '(a)', 'wrong sum'
  call mpi_win_free(window, ierr)

  call mpi_win_create_dynamic(mpi_info_null, mpi_comm_world, dynamic, ierr)
  call mpi_win_attach(dynamic, later, bytes, ierr)
  call mpi_get_address(later, at, ierr)
  call mpi_sendrecv(at, 1, mpi_aint, left, 0, there, 1, mpi_aint, right, 0, mpi_comm_world, mpi_status_ignore, ierr)
  call mpi_win_fence(0, dynamic, ierr)
  call mpi_put(mine, many, mpi_integer, right, there, many, mpi_integer, dynamic, ierr)
  call mpi_win_fence(mpi_mode_nosucceed, dynamic, ierr)
  if (any(later /= expected)) print '(a)', 'wrong numbers in attached memory'
  call mpi_win_detach(dynamic, later, ierr)
  call mpi_win_free(dynamic, ierr)
  call mpi_finalize(ierr)
  if (rank == 0) print '(a)', 'passed'

contains
  subroutine expect_attribute(key, wanted)
    integer, intent(in) :: key
    integer(kind=mpi_address_kind), intent(in) :: wanted
    call mpi_win_get_attr(window, key, value, flag, ierr)
    if (.not. flag .or. value /= wanted) print '(a, i0, a, i0)', 'wrong attribute: ', value, ' instead of ', wanted
  end subroutine
end program
