(** Random sketches are unbiased. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Signs of d outputs, 1 or -1, and the sketch that adds outputs up in groups with them. *)
Definition sign (R : ringType) d (s : {ffun 'I_d -> bool}) i : R := (-1) ^+ s i.
Definition sketch (R : ringType) d w (group : 'I_d -> 'I_w) s (g : 'cV[R]_d) : 'cV_w :=
  \col_b \sum_(i | group i == b) sign R s i * g i 0.

(** A sketched inner product has the mean of the inner product, for any groups: all 2^d signs are equally likely. *)
(* Implements: sketch-unbiased *)
Definition sketch_unbiased := forall (R : realFieldType) d w (P : law R [finType of {ffun 'I_d -> bool}]) (group : 'I_d -> 'I_w)
    (g h : 'cV[R]_d),
  (* signs are independent and fair *) (forall s, prob P s = 1 / 2%:R ^+ d) ->
  mean P (fun s => dot (sketch group s g) (sketch group s h)) = dot g h.
