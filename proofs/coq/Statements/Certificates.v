(** What the layers below the ones that were evaluated can still add. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Products.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Gradients that Jacobians J carry from a layer's output to that of the layer below. *)
Definition chain (R : ringType) d L (J : forall l, 'M[R]_(d l, d l.+1)) (x : trace R d) :=
  forall l, (0 < l < L)%N -> grad x l = J l *m grad x l.+1.

(** Ghost against its sum over layers k to L. *)
(* Implements: top-layer-certificate *)
Definition certificate := forall (R : rcfType) d n L k (V : 'I_n -> trace R d) (j : trace R d) Jz Jj
    (fz : 'I_n -> nat -> R) (fj : nat -> R),
  (* meaning *) (0 < k <= L)%N ->
  (* a chain of layers *) ((forall z, chain L (Jz z) (V z)) /\ chain L Jj j) ->
  (* $f_t(x)$ bounds the norm of layer $t$'s backward step at $x$ *)
  (forall l, (0 < l < k)%N -> (forall z, gain_le (Jz z l) (fz z l)) /\ gain_le (Jj l) (fj l)) ->
  `|ghost L V j - \sum_z \sum_(k <= l < L.+1) alpha (V z) j l * beta (V z) j l|
  <= \sum_z \sum_(1 <= l < k) `|alpha (V z) j l| * (\prod_(l <= t < k) (fz z t * fj t)) * (norm (grad (V z) k) * norm (grad j k)).
