(** Gradient decay (Appendix B) and unit gain (Appendix C) exclude each other. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Laws Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The second moment of a random vector. *)
Definition moment (R : numDomainType) (W : finType) (P : law R W) n (g : W -> 'cV[R]_n) :=
  \matrix_(i, l) mean P (fun w => g w i 0 * g w l 0).

(** Gradients that decay have a small mean gain: g is a random last gradient, M + D the operator below it,
    whose fluctuation D has mean zero given g. *)
(* Implements: decay-bounds-gain *)
Definition decay_bounds_gain := forall (R : rcfType) (W : finType) (P : law R W) m n (g : W -> 'cV[R]_n)
    (M : 'M_(m, n))
    (D : W -> 'M_(m, n)) rho k,
  (* A1 for every gradient *) (0 <= rho /\ forall w, norm ((M + D w) *m g w) <= rho ^+ k * norm (g w)) ->
  (* $\E[\Delta A \mid g] = 0$ *) (forall i l, same_mean_given P g (fun w => D w i l) (fun=> 0)) ->
  (* $S$ is the second moment of $g$ *)
  \tr (M^T *m M *m moment P g) <= rho ^+ (2 * k) * \tr (moment P g).
