(* SPDX-License-Identifier: BSD-3-Clause *)

(* Prints its own backtrace, from within an operator, a closure and the standard library. *)

exception Sold_out of int

module Basket = struct
  let rec sum = function [] -> 0 | x :: rest -> x + sum rest
  let ( +! ) a b = if a > 60 then raise (Sold_out a) else a + b
end

let add items n =
  let open Basket in
  sum (List.map (fun x -> x +! n) items) + 1

let twice f x = 1 + f (f x)

let () =
  Printexc.record_backtrace true;
  let items = List.init 5 (fun i -> i * 20) in
  try Printf.printf "%d\n" (twice (fun n -> add items n + 1) 3)
  with Sold_out _ -> print_string (Printexc.get_backtrace ())
