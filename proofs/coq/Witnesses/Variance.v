(** Witnesses of Statements/Variance.v: three layers that depend on two fair coins; alpha = c = 1. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Variance.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Variance.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Noisy.
Variable R : realFieldType.
Local Notation one := (fun _ : 'I_3 => 1 : R).
Local Notation fair := (fair R).
Local Notation noisy := (noisy R).
Lemma noisy_signal w : signal noisy w = 2%:R + side R w.1. Proof.
  by rewrite /signal /Instances.noisy eqxx addr0. Qed.
Lemma noisy_noise w : noise one one noisy w = 2%:R * side R w.2.
Proof.
by rewrite /noise /remainder noisy_signal /Instances.noisy !big_ord_recr big_ord0 /= !mul1r; ring.
Qed.
Lemma noisy_cov : cov fair (signal noisy) (noise one one noisy) = 0.
Proof. by rewrite /cov !fairE !noisy_signal !noisy_noise /=; field. Qed.
Lemma noisy_var : var fair (signal noisy) = 1.
Proof. by rewrite /var /cov !fairE !noisy_signal /=; field. Qed.
Lemma one_gains : gain_sum one one = 3%:R. Proof. by rewrite /gain_sum sumr_const card_ord mulr1. Qed.
End Noisy.

Lemma correlated_bound : ltac:(witness Statements.Variance.correlated_bound).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 1), (fun=> 1), (noisy R).
by rewrite noisy_cov one_gains lexx ler0n.
Qed.

Lemma noise_only : ltac:(witness Statements.Variance.noise_only).
Proof. exact: correlated_bound. Qed.

Lemma unit_gains : ltac:(witness Statements.Variance.unit_gains).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 1), (fun=> 1), (noisy R).
by rewrite noisy_cov mulr0.
Qed.

Lemma lai_varies_less : ltac:(witness Statements.Variance.lai_varies_less).
Proof. exact: unit_gains. Qed.

Lemma criterion : ltac:(witness Statements.Variance.criterion).
Proof.
by move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 1), (fun=> 1), (noisy R); exact: noisy_cov.
Qed.

(* The second coin adds to the last similarity's variance. *)
Lemma lai_varies_more : ltac:(witness Statements.Variance.lai_varies_more).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 1), (calm R); split=> l; first exact: ler01.
have last : var (fair R) (signal (calm R)) = 2%:R.
  by rewrite /var /cov !fairE /signal /calm eqxx /side /=; field.
rewrite /sd last ler_sqrt ?ltr0n // /var /cov !fairE /calm; case: eqP => _; rewrite /side /= -subr_ge0.
  by rewrite (_ : _ - _ = 0) ?lexx //; field.
by rewrite (_ : _ - _ = 1) ?ler01 //; field.
Qed.

(* T is the first coin. *)
Lemma scale_free : ltac:(witness Statements.Variance.scale_free).
Proof.
move=> R; take_fair R; exists bool_eqType, (fun w => w.1), 2%N; split=> //.
exists (fun=> 1), (fun=> 1), (noisy R), (fun b => 2%:R + side R b); split; first exact: noisy_signal.
split=> [l t|].
  by rewrite !fair_some !fairE /signal /noisy eqxx; case: (l == ord_max); case: t; rewrite /side /=; field.
rewrite !fairE /ghost /lai /signal /noisy eqxx !big_ord_recr !big_ord0 /side /=.
have six : - 6%:R != 0 :> R by rewrite oppr_eq0 pnatr_eq0.
by split; (rewrite (_ : _ / _ = - 6%:R); [exact: six|field]).
Qed.
