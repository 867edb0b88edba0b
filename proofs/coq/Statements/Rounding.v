(** How far rounding moves a sum of products: every operation multiplies by 1 + delta. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** Each of m exact terms t meets at most n operations (fewer: some delta are 0), in any order of
    summation. *)
(* Implements: rounding-error *)
Definition rounding_error := forall (R : realFieldType) m n (u : R) (t : 'I_m -> R)
    (delta : 'I_m -> 'I_n -> R),
  (* every operation is rounded to nearest, with unit roundoff $u$ *)
  (0 <= u /\ forall i k, `|delta i k| <= u) ->
  (* $n u < 1$ *) n%:R * u < 1 ->
  `|\sum_i t i * \prod_k (1 + delta i k) - \sum_i t i| <= n%:R * u / (1 - n%:R * u) * \sum_i `|t i|.
