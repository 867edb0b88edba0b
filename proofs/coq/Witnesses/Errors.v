(** Witnesses of Statements/Errors.v: two coins, each of which is one part, one source or one row. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws Errors.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Errors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Coins.
Variable R : realFieldType.
Definition toss (i : 'I_2) (w : bool * bool) : R := 1 + (if i == ord0 then side R w.1 else side R w.2).
Lemma toss_mean i : mean (fair R) (toss i) = 1.
Proof. by rewrite fairE /toss /side; case: (i == ord0) => /=; field. Qed.
Lemma toss_var i : var (fair R) (toss i) = 1.
Proof. by rewrite /var /cov toss_mean fairE /toss /side; case: (i == ord0) => /=; field. Qed.
Lemma toss_free : uncorrelated (fair R) toss.
Proof.
move=> i k; rewrite /cov !toss_mean fairE /toss /side.
by case: i k => [[|[|i]] hi] [[|[|k]] hk] //= _; field.
Qed.
End Coins.

Lemma part_variance : ltac:(witness Statements.Errors.part_variance).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 4%N); split=> //; exists (toss R), 4%:R^-1,
  2%:R^-1.
split=> //; split=> //; split; first exact: toss_free.
by move=> i; rewrite toss_mean toss_var; split; field.
Qed.

Lemma contrast_variance : ltac:(witness Statements.Errors.contrast_variance).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (toss R), (fun=> 1).
by split; [exact: toss_free|exact: toss_var].
Qed.

Lemma contrast_shrinkage : ltac:(witness Statements.Errors.contrast_shrinkage).
Proof.
move=> R; take_fair R; exists (fun w => side R w.1), (fun w => side R w.2), 1, 1.
have m1 : mean (fair R) (fun w => side R w.1) = 0 by rewrite fairE /side /=; field.
have m2 : mean (fair R) (fun w => side R w.2) = 0 by rewrite fairE /side /=; field.
split; first by split=> //; rewrite /var /cov m1 fairE /side /=; field.
by split; rewrite ?ltr01 // /var /cov ?m1 m2 fairE /side /=; field.
Qed.

Lemma cochran_q : ltac:(witness Statements.Errors.cochran_q).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists (fun=> 1), (toss R), 1.
split=> //; split; last exact: toss_mean.
by split=> [|k]; [exact: toss_free|rewrite ltr01 toss_var expr1n].
Qed.

Lemma fieller_interval : ltac:(witness Statements.Errors.fieller_interval).
Proof. by move=> R; exists 1, 2%:R; rewrite ler01 ler0n. Qed.

(* The p-values of two samples are 1 on heads of their coin, and 1/2 on tails. *)
Lemma false_discovery_rate : ltac:(witness Statements.Errors.false_discovery_rate).
Proof.
move=> R; take_fair R; exists 2%N; split=> //.
exists (fun j w => if (if j == ord0 then w.1 else w.2) then 1 else 2%:R^-1), setT, 1.
split; first exact: ltr01.
move=> j x _ x0.
have sumE (f : bool * bool -> bool) : \sum_(w | f w) prob (fair R) w = mean (fair R) (fun w => (f w)%:R).
  by rewrite /mean big_mkcond; apply: eq_bigr => w _; case: (f w); rewrite ?mulr1 ?mulr0.
have half1 : 2%:R^-1 <= 1 :> R by rewrite invf_le1 ?ltr0n // ler1n.
rewrite sumE fairE; case: (j == ord0) => /=.
- case h: (2%:R^-1 <= x); case g: (1 <= x); rewrite /=.
  + by apply: le_trans g; rewrite ler_pdivr_mulr ?ltr0n // mul1r -!natrD.
  + by apply: le_trans h; rewrite ler_pdivr_mulr ?ltr0n // -!natrD ler_pdivl_mull ?ltr0n // -natrM ler_nat.
  + by move: h; rewrite (le_trans half1 g).
  + by rewrite !addr0 mul0r.
- case h: (2%:R^-1 <= x); case g: (1 <= x); rewrite /=.
  + by apply: le_trans g; rewrite ler_pdivr_mulr ?ltr0n // mul1r -!natrD.
  + by apply: le_trans h; rewrite ler_pdivr_mulr ?ltr0n // -!natrD ler_pdivl_mull ?ltr0n // -natrM ler_nat.
  + by move: h; rewrite (le_trans half1 g).
  + by rewrite !addr0 mul0r.
Qed.

(* Each of the two rows has both entries from its own coin. *)
Lemma gradient_noise : ltac:(witness Statements.Errors.gradient_noise).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists 2%N; split=> //;
  exists (fun j w => const_mx (toss R j w)).
have ne q (c : R) : c != 0 -> const_mx c != 0 :> 'M[R]_(2, q.+1).
  by move=> c0; apply/eqP => /matrixP /(_ 0 0); rewrite !mxE => /eqP; rewrite (negPf c0).
have entry j (a : 'I_2) : mean (fair R) (fun w => const_mx (toss R j w) a (0 : 'I_1)) = 1.
  by rewrite -(toss_mean R j); apply: eq_bigr => w _; rewrite mxE.
have both j k (a b : 'I_2) (o : 'I_1) :
    cov (fair R) (fun w => const_mx (toss R j w) a o) (fun w => const_mx (toss R k w) b o)
    = cov (fair R) (toss R j) (toss R k).
  by rewrite (ord1 o) /cov !entry !toss_mean; apply: eq_bigr => w _; rewrite !mxE.
exists (const_mx 1); split; first exact: (ne 0%N 1 (oner_neq0 _)).
exists (const_mx 1); split; first exact: (ne 1%N 1 (oner_neq0 _)).
split=> //; split=> [j k a b jk|j a|j a b]; rewrite ?both ?entry ?mxE //; first exact: toss_free.
exact: toss_var.
Qed.
