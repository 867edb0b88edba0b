(** A witness of Statements/Sketches.v: two signs. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Sketches.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Signs.
Variable R : realFieldType.
Local Notation signs := [finType of {ffun 'I_2 -> bool}].
Lemma signs_ge0 (s : signs) : 0 <= 1 / 2%:R ^+ 2 :> R. Proof. by rewrite divr_ge0 ?exprn_ge0 ?ler0n ?ler01. Qed.
Lemma signs_sum : \sum_(s : signs) (1 / 2%:R ^+ 2) = 1 :> R.
Proof.
rewrite sumr_const card_ffun card_bool card_ord -mulr_natr natrX mul1r mulVf //.
by rewrite expf_neq0 // pnatr_eq0.
Qed.
Definition signs_law := Law signs_ge0 signs_sum.
End Signs.

Lemma sketch_unbiased : ltac:(witness Statements.Sketches.sketch_unbiased).
Proof.
move=> R; exists 2%N; split=> //; exists (signs_law R); split=> // s.
by rewrite divr_gt0 ?exprn_gt0 ?ltr0n ?ltr01.
Qed.
