(** Witnesses of Statements/Sketches.v: two outputs. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks Laws.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Sketches.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Draws.
Variable R : realFieldType.
Local Notation signs := [finType of {ffun 'I_2 -> bool}].
Local Notation orders := [finType of 'S_2].
Lemma signs_ge0 (s : signs) : 0 <= 1 / 2%:R ^+ 2 :> R. Proof. by rewrite divr_ge0 ?exprn_ge0 ?ler0n ?ler01.
  Qed.
Lemma signs_sum : \sum_(s : signs) (1 / 2%:R ^+ 2) = 1 :> R.
Proof.
rewrite sumr_const card_ffun card_bool card_ord -mulr_natr natrX mul1r mulVf //.
by rewrite expf_neq0 // pnatr_eq0.
Qed.
Definition signs_law := Law signs_ge0 signs_sum.
Lemma signs_gt0 s : 0 < prob signs_law s. Proof. by rewrite divr_gt0 ?exprn_gt0 ?ltr0n ?ltr01. Qed.
Lemma orders_ge0 (s : orders) : 0 <= 1 / 2`!%:R :> R. Proof. by rewrite divr_ge0 ?ler0n ?ler01. Qed.
Lemma orders_sum : \sum_(s : orders) (1 / 2`!%:R) = 1 :> R.
Proof.
rewrite sumr_const (eq_card (B := [set: 'S_2])) ?cardsT ?card_Sn => [|s]; last by rewrite !inE.
by rewrite -mulr_natr mul1r mulVf // pnatr_eq0.
Qed.
Definition orders_law := Law orders_ge0 orders_sum.
Lemma orders_gt0 s : 0 < prob orders_law s. Proof. by rewrite divr_gt0 ?ltr0n ?ltr01. Qed.
Definition joint (x : [finType of {ffun 'I_2 -> bool} * 'S_2]) := prob signs_law x.1 * prob orders_law x.2.
Lemma joint_gt0 x : 0 < joint x. Proof. by rewrite mulr_gt0 ?signs_gt0 ?orders_gt0. Qed.
Lemma joint_sum : \sum_x joint x = 1.
Proof.
rewrite -(pair_bigA _ (fun s pi => prob signs_law s * prob orders_law pi)) /=.
apply: etrans (prob_sum signs_law); apply: eq_bigr => s _; rewrite -mulr_sumr -[RHS]mulr1; congr (_ * _).
exact: (prob_sum orders_law).
Qed.
Definition joint_law := Law (fun x => ltW (joint_gt0 x)) joint_sum.
End Draws.

Lemma sketch_unbiased : ltac:(witness Statements.Sketches.sketch_unbiased).
Proof. by move=> R; exists 2%N; split=> //; exists (signs_law R); split=> // s; apply: signs_gt0. Qed.

Lemma sketch_variance : ltac:(witness Statements.Sketches.sketch_variance).
Proof. by move=> R; exists 2%N; split=> //; exists (signs_law R); split=> // s; apply: signs_gt0. Qed.

Lemma sketch_permutation : ltac:(witness Statements.Sketches.sketch_permutation).
Proof.
move=> R; exists 2%N; split=> //; exists (signs_law R); split=> [s|]; first exact: signs_gt0.
exists (orders_law R); split=> [s|]; first exact: orders_gt0.
exists (joint_law R); split=> [x|]; first exact: joint_gt0.
by do 4 split=> //; exists ord0, ord_max.
Qed.
