(** Random variables, over a law with finitely many outcomes. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A probability law on finitely many outcomes. *)
Record law (R : numDomainType) (W : finType) := Law {
  prob : W -> R;
  prob_ge0 : forall w, 0 <= prob w;
  prob_sum : \sum_w prob w = 1 }.

Definition mean (R : numDomainType) (W : finType) (P : law R W) (X : W -> R) := \sum_w prob P w * X w.
Definition cov (R : numDomainType) (W : finType) (P : law R W) (X Y : W -> R) :=
  mean P (fun w => (X w - mean P X) * (Y w - mean P Y)).
Definition var (R : numDomainType) (W : finType) (P : law R W) (X : W -> R) := cov P X X.
Definition sd (R : rcfType) (W : finType) (P : law R W) (X : W -> R) := Num.sqrt (var P X).

(* The mean of X given T is that of Y given T, outcome by outcome of T. *)
Definition same_mean_given (R : numDomainType) (W : finType) (P : law R W) (S : eqType) (T : W -> S)
  (X Y : W -> R) :=
  forall t, \sum_(w | T w == t) prob P w * X w = \sum_(w | T w == t) prob P w * Y w.
