(** What the statements are about: vectors, traces of samples through a network, Ghost, LAI and LLI, and the
    assumptions of the paper's Appendix B.

    A trace has, for one sample, the activations a^(0), a^(1), ... (a^(0) is the input) and the output
    gradients g^(1), g^(2), ...: g^(l) is the derivative of the sample's loss with respect to the
    pre-activation s^(l). Layer l has width d l. V is the validation set, n samples; j is a training sample; L
    is the number of layers. The field R is any real closed one where norms are needed (the reals are one),
    any ordered one elsewhere. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The inner product of two vectors, and of two matrices (Frobenius). *)
Definition dot (R : ringType) m n (A B : 'M[R]_(m, n)) : R := \sum_i \sum_k A i k * B i k.

(* The Euclidean norm of a vector, the Frobenius norm of a matrix. *)
Definition norm (R : rcfType) m n (A : 'M[R]_(m, n)) : R := Num.sqrt (dot A A).

(* The cosine of two vectors; 0 where one of them is 0. *)
Definition cos (R : rcfType) m n (A B : 'M[R]_(m, n)) : R := dot A B / (norm A * norm B).

Record trace (R : ringType) (d : nat -> nat) := Trace {
  act : forall l, 'cV[R]_(d l);
  grad : forall l, 'cV[R]_(d l) }.

Section Scores.
Variables (R : ringType) (d : nat -> nat).

(* Layer l is compared by its input and by its output gradient. *)
(* Defines: similarities *)
Definition alpha (x y : trace R d) l := dot (act x l.-1) (act y l.-1).
(* Defines: similarities, layer-gradients *)
Definition beta (x y : trace R d) l := dot (grad x l) (grad y l).

Variables (n L : nat) (V : 'I_n -> trace R d) (j : trace R d).

(* Scores: positive helps.  The paper's influences are these with a minus. *)
Definition ghost := \sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j l.
Definition lai := \sum_z (\sum_(1 <= l < L.+1) alpha (V z) j l) * beta (V z) j L.
Definition lli := \sum_z alpha (V z) j L * beta (V z) j L.
(* Defines: app-lai-defs *)
Definition influence_ghost := - ghost.
(* Defines: gradient2, app-lai-defs *)
Definition influence_lai := - lai.
(* Defines: lli *)
Definition influence_lli := - lli.

(* The gap of one pair. *)
Definition zeta z := \sum_(1 <= l < L) alpha (V z) j l * (beta (V z) j l - beta (V z) j L).
End Scores.

Section Assumptions.
Variables (R : rcfType) (d : nat -> nat) (n L : nat) (V : 'I_n -> trace R d) (j : trace R d).
Implicit Types x : trace R d.

(* Gradient norms shrink by rho for every layer on the way down. *)
Definition decays rho x := forall l, (0 < l <= L)%N -> norm (grad x l) <= rho ^+ (L - l) * norm (grad x L).
Definition all_decay rho := (forall z, decays rho (V z)) /\ decays rho j.

(* A1, with its rho. *)
Definition A1 rho := (0 < rho < 1) /\ all_decay rho.

(* A2, with its C_a. *)
Definition bounded C x := forall l, (l < L)%N -> norm (act x l) <= C.
Definition A2 C := [/\ 0 < C, forall z, bounded C (V z) & bounded C j].

(* A3, and the variant that the geometric bound assumes. *)
(* Defines: non-negative-alignment *)
Definition A3 := forall z l, (0 < l <= L)%N -> 0 <= cos (grad (V z) l) (grad j l).
(* Defines: non-expansive *)
Definition variant :=
  forall z l, (0 < l <= L)%N -> cos (grad (V z) l) (grad j l) <= cos (grad (V z) L) (grad j L).

(* The alignment that LLI's bounds assume. *)
Definition non_expansive :=
  forall z l, (0 < l <= L)%N -> `|cos (grad (V z) l) (grad j l)| <= `|cos (grad (V z) L) (grad j L)|.

(* The product of the norms of the last gradients. *)
Definition last_norms z := norm (grad (V z) L) * norm (grad j L).
End Assumptions.

(* Traces that a chain of linear layers s^(l+1) = W_l a^(l), a^(l) = s^(l), does leave. *)
Definition linear_chain (R : ringType) d L (W : forall l, 'M[R]_(d l.+1, d l)) (x : trace R d) :=
  (forall l, (l < L)%N -> act x l.+1 = W l *m act x l) /\
  (forall l, (l < L)%N -> grad x l = (W l)^T *m grad x l.+1).
