(** Appendix B: proofs of Statements/Geometric.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Geometric.
From LAI Require Import Vectors Gap.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem alignment_decay : Statements.Geometric.alignment_decay.
Proof.
move=> R d n L V j rho [_ A1] narrow z l hl; rewrite /beta !dot_cos !(normrM (cos _ _)).
rewrite !(ger0_norm (mulr_ge0 (norm_ge0 _) (norm_ge0 _))) [X in _ <= X]mulrCA; apply: ler_pmul;
  rewrite ?mulr_ge0 ?norm_ge0 ?narrow //.
exact: product_decay.
Qed.

Theorem alignment_implies_decay : Statements.Geometric.alignment_implies_decay.
Proof.
move=> R d n L V j rho [_ A1] narrow cos0 z l hl; rewrite /beta !dot_cos [X in _ <= X]mulrCA.
apply: (@le_trans _ _ (cos (grad (V z) L) (grad j L) * (norm (grad (V z) l) * norm (grad j l)))).
  by apply: ler_wpmul2r; rewrite ?mulr_ge0 ?norm_ge0 ?narrow.
by apply: ler_wpmul2l => //; apply: product_decay.
Qed.

(* Two samples of one chain, s = 1 and s = -1: every layer halves the first unit and drops the second one. *)
Section Rising.
Variable R : rcfType.
Local Notation half := (2%:R^-1 : R).
Local Notation e := (delta_mx 0 0 : 'cV[R]_2).
Local Notation f := (delta_mx 1 0 : 'cV[R]_2).
Definition two_wide (_ : nat) := 2%N.
Definition dropping l : 'M[R]_(two_wide l.+1, two_wide l) := half *: (delta_mx 0 0 : 'M_2).
Definition rising s : trace R two_wide :=
  Trace (fun l => half ^+ l *: e) (fun l => if (l < 2)%N then half ^+ (2 - l) *: e else e + s *: f).
Let h0 : 0 < half. Proof. by rewrite invr_gt0 ltr0n. Qed.
Let h1 : half < 1. Proof. by rewrite invf_lt1 ?ltr0n // ltr1n. Qed.
Let ee : dot e e = 1. Proof. by rewrite dot_delta mxE. Qed.
Let ff : dot f f = 1. Proof. by rewrite dot_delta mxE. Qed.
Let ef : dot e f = 0. Proof. by rewrite dot_delta mxE. Qed.
Let last s t : dot (e + s *: f) (e + t *: f) = 1 + s * t.
Proof. by rewrite dotDl !dotDr !dotZl !dotZr ee ff ef (dotC f e) ef !mulr0 addr0 add0r mulr1. Qed.

Lemma rising_linear s : linear_chain 2 dropping (rising s).
Proof.
have drop (a : R) : (half *: (delta_mx 0 0 : 'M_2)) *m (a *: e) = (half * a) *: e.
  by rewrite -scalemxAl -scalemxAr scalerA mul_delta_mx.
split=> l hl; first by rewrite /= [RHS]drop exprS.
rewrite /dropping linearZ /= trmx_delta hl; case: l hl => [|[|//]] _ /=; rewrite ?expr1.
  by rewrite [RHS]drop subn0 expr2.
rewrite mulmxDr -scalemxAl mul_delta_mx -scalemxAr -scalemxAl mul_delta_mx_0 // !scaler0 addr0.
by rewrite ?subn1 ?expr1.
Qed.
Lemma rising_decays s : decays 2 half (rising s).
Proof.
move=> l /andP [_ hl] /=; case: ltnP => l2; last first.
  by rewrite (_ : l = 2%N) ?subnn ?expr0 ?mul1r //; apply/eqP; rewrite eqn_leq hl.
rewrite normZ /(norm e) ee sqrtr1 mulr1 ger0_norm ?exprn_ge0 ?(ltW h0) // ler_pemulr ?exprn_ge0 ?(ltW h0) //.
have up : 1 <= 1 + s * s by rewrite ler_addl -expr2 sqr_ge0.
by rewrite /norm last; have := ler_wsqrtr up; rewrite sqrtr1.
Qed.
Lemma rising_bounded s : bounded 3 1 (rising s).
Proof.
move=> l _; rewrite /= normZ /(norm e) ee sqrtr1 mulr1 ger0_norm ?exprn_ge0 ?(ltW h0) //.
by rewrite exprn_ile1 ?(ltW h0) ?(ltW h1).
Qed.
Lemma rising_beta : beta (rising 1) (rising (-1)) 1 = half ^+ 2 /\ beta (rising 1) (rising (-1)) 2 = 0.
Proof. by rewrite /beta /= last dotZl dotZr ee subn1 expr1 mulr1 mul1r subrr -expr2. Qed.
End Rising.

Theorem variant_of_A3 : Statements.Geometric.variant_of_A3.
Proof.
split=> [|R]; first exact: alignment_implies_decay.
have h0 : 0 < 2%:R^-1 :> R by rewrite invr_gt0 ltr0n.
have [b1 b2] := rising_beta R; have pos : 0 < beta (rising (1 : R)) (rising (-1)) 1 by rewrite b1 exprn_gt0.
have c2 : cos (grad (rising (1 : R)) 2) (grad (rising (-1)) 2) = 0 by rewrite /cos [X in X / _]b2 mul0r.
exists two_wide, (@dropping R), (fun=> rising 1), (rising (-1)), 2%:R^-1, 1; split.
- by split=> [|z]; apply: rising_linear.
- split; first by rewrite h0 invf_lt1 ?ltr0n // ltr1n.
  by split=> [z|]; apply: rising_decays.
- by split=> [|z|]; rewrite ?ltr01 //; apply: rising_bounded.
- move=> z [|[|[|//]]] // _; last by rewrite c2.
  by rewrite /cos divr_ge0 ?mulr_ge0 ?norm_ge0 // ltW.
split=> [/(_ ord0 1%N isT)|/(_ ord0)]; last by rewrite b2 mulr0 leNgt pos.
rewrite c2 => c1; move: pos; rewrite /beta dot_cos ltNge => /negP; apply.
by rewrite mulr_le0_ge0 ?mulr_ge0 ?norm_ge0.
Qed.

Theorem lli_gap : Statements.Geometric.lli_gap.
Proof.
move=> R d n L V j rho C hA1 hA2 narrow; rewrite -opprD normrN ghost_lli.
rewrite -powers_rev -mulrA mulr_suml mulr_sumr.
apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => z _.
rewrite mulr_sumr mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _.
rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l /andP [l0 lL].
have hl : (0 < l <= L.+1)%N by rewrite l0 ltnW.
by rewrite normrM; apply: ler_pmul; rewrite ?(alpha_le hA2) // mulrC (alignment_decay hA1).
Qed.

Theorem lli_relative_gap : Statements.Geometric.lli_relative_gap.
Proof.
move=> R d n L V j rho C abar hA1 hA2 narrow [abar0 ha] hb lli0.
have least : abar * (\sum_z beta (V z) j L.+1) <= lli L.+1 V j.
  by rewrite mulr_sumr; apply: ler_sum => z _; apply: ler_wpmul2r.
have sum0 : 0 <= \sum_z beta (V z) j L.+1 by apply: sumr_ge0.
have pos : 0 < lli L.+1 V j.
  by rewrite lt_def lli0 /=; apply: le_trans least; rewrite mulr_ge0 // ltW.
rewrite [X in _ / X](_ : _ = lli L.+1 V j); last by rewrite normrN gtr0_norm.
rewrite ler_pdivr_mulr //; apply: le_trans (lli_gap hA1 hA2 narrow) _.
rewrite (eq_bigr (fun z => beta (V z) j L.+1)) => [|z _]; last by rewrite ger0_norm.
set T := \sum_z _ in least sum0 *; set S := \sum_(1 <= l < L.+1) _.
have S0 : 0 <= S by apply: sumr_ge0 => l _; rewrite exprM exprn_ge0 // sqr_ge0.
have -> : C ^+ 2 * T * S = C ^+ 2 / abar * S * (abar * T) by field; rewrite gt_eqF.
apply: ler_wpmul2l least; apply: mulr_ge0 => //; apply: divr_ge0; [exact: sqr_ge0|exact: ltW].
Qed.

(** The linear chain of width 1 that refutes the printed bounds: all matrices are 1 but the last, which is
    r. *)
Section Chain.
Variables (R : rcfType) (L : nat) (r : R).
Definition one_wide (_ : nat) := 1%N.
Definition weight l : 'M[R]_(one_wide l.+1, one_wide l) := (if l == L.+1 then r else 1)%:M.
Definition chain : trace R one_wide :=
  Trace (fun l => (if (l <= L.+1)%N then 1 else r)%:M) (fun l => (if (l <= L.+1)%N then r else 1)%:M).

Lemma dot_scalar (a b : R) : dot (a%:M : 'M_1) b%:M = a * b.
Proof. by rewrite /dot !big_ord1 !mxE. Qed.
Lemma norm_scalar (a : R) : 0 <= a -> norm (a%:M : 'M_1) = a.
Proof. by move=> a0; rewrite /norm dot_scalar -expr2 sqrtr_sqr ger0_norm. Qed.
Lemma cos_scalar (a : R) : 0 < a -> cos (a%:M : 'M_1) a%:M = 1.
Proof. by move=> a0; rewrite /cos dot_scalar norm_scalar ?divff ?mulf_neq0 ?gt_eqF // ltW. Qed.

Lemma mul_scalar (a b : R) : (a%:M : 'M_1) *m (b%:M : 'M_1) = (a * b)%:M.
Proof. by rewrite -scalar_mxM. Qed.

Lemma chain_linear : linear_chain L.+2 weight chain.
Proof.
split=> l lL; [|rewrite /weight tr_scalar_mx]; apply: esym; apply: etrans (mul_scalar _ _) _ => /=.
  have [->|ne] := eqVneq l L.+1; first by rewrite ltnn leqnn mulr1.
  have lt : (l < L.+1)%N by rewrite ltn_neqAle ne -ltnS.
  by rewrite lt (ltnW lt) mulr1.
have [->|ne] := eqVneq l L.+1; first by rewrite ltnn leqnn mulr1.
have lt : (l < L.+1)%N by rewrite ltn_neqAle ne -ltnS.
by rewrite lt (ltnW lt) mul1r.
Qed.

Lemma chain_alpha l : (l <= L.+2)%N -> alpha chain chain l = 1.
Proof. by case: l => [|l] lL; rewrite /alpha /= -?[(l <= L.+1)%N]ltnS ?lL dot_scalar mulr1. Qed.
Lemma chain_beta l : (l < L.+2)%N -> beta chain chain l = r ^+ 2.
Proof. by move=> lL; rewrite /beta /= -ltnS lL dot_scalar. Qed.
Lemma chain_signal : beta chain chain L.+2 = 1.
Proof. by rewrite /beta /= ltnn dot_scalar mulr1. Qed.

Variables (n : nat) (rho : R).
Hypotheses (rho0 : 0 < rho) (rho1 : rho < 1) (r0 : 0 < r) (hr : r <= rho ^+ L.+1).
Let V (z : 'I_n.+1) := chain.

Lemma chain_decays : decays L.+2 rho chain.
Proof.
move=> l /andP [l0 lL] /=; rewrite ltnn [X in _ * X]norm_scalar ?ler01 // mulr1.
case: leqP => h; last by rewrite norm_scalar ?ler01 // (_ : l = L.+2) ?subnn ?expr0 //; apply/eqP;
  rewrite eqn_leq lL.
rewrite norm_scalar ?(ltW r0) //; apply: le_trans hr _; apply: ler_wiexpn2l;
  rewrite ?(ltW rho0) ?(ltW rho1) //.
by rewrite -[L.+1]/(L.+2 - 1)%N leq_sub2l.
Qed.
Lemma chain_A1 : A1 L.+2 V chain rho.
Proof. by rewrite /A1 rho0 rho1; split=> //; split=> [z|]; apply: chain_decays. Qed.
Lemma chain_A2 : r <= 1 -> A2 L.+3 V chain 1.
Proof.
move=> r1; have small l : norm (act chain l) <= 1.
  by rewrite /=; case: leqP => _; rewrite norm_scalar ?ler01 ?(ltW r0).
by split=> [|z l _|l _]; rewrite ?ltr01.
Qed.
Lemma chain_cos l : cos (grad chain l) (grad chain l) = 1.
Proof. by rewrite /=; case: leqP => _; apply: cos_scalar; rewrite ?ltr01. Qed.
Lemma chain_A3 : A3 L.+2 V chain.
Proof. by move=> z l hl; rewrite chain_cos ler01. Qed.
Lemma chain_variant : variant L.+2 V chain.
Proof. by move=> z l hl; rewrite !chain_cos. Qed.

Lemma chain_gap : `|influence_ghost L.+2 V chain - influence_lai L.+2 V chain|
  = n.+1%:R * (L.+1%:R * (1 - r ^+ 2)).
Proof.
have rho_r : r ^+ 2 <= 1.
  by rewrite exprn_ile1 ?(ltW r0) //; apply: le_trans hr _; rewrite exprn_ile1 ?(ltW rho0) ?(ltW rho1).
rewrite influence_gap ghost_lai /zeta -normrN -sumrN.
have pair z : - zeta L.+2 V chain z = L.+1%:R * (1 - r ^+ 2).
  rewrite /zeta -sumrN big_nat (eq_bigr (fun=> 1 - r ^+ 2)) => [|l /andP [l0 lL]].
    by rewrite -big_nat sumr_const_nat subn1 mulr_natl.
  by rewrite chain_alpha ?(ltnW lL) // chain_beta // chain_signal mul1r opprB.
rewrite (eq_bigr _ (fun z _ => pair z)) sumr_const card_ord -mulr_natl ger0_norm //.
by rewrite !mulr_ge0 ?ler0n // subr_ge0.
Qed.
Lemma chain_sum : \sum_z beta (V z) chain L.+2 = n.+1%:R.
Proof. by rewrite (eq_bigr (fun=> 1)) => [|z _]; rewrite ?chain_signal // sumr_const card_ord. Qed.
Lemma chain_lai : `|influence_lai L.+2 V chain| = n.+1%:R * L.+2%:R.
Proof.
rewrite /influence_lai /lai normrN (eq_bigr (fun=> L.+2%:R)) => [|z _].
  by rewrite sumr_const card_ord -mulr_natl ger0_norm // -natrM ler0n.
rewrite chain_signal mulr1 big_nat (eq_bigr (fun=> 1)) => [|l /andP [l0 lL]]; last by rewrite chain_alpha.
by rewrite -big_nat sumr_const_nat subn1.
Qed.
End Chain.

(* The last weight: small enough for A1, and for the gap. *)
Section Weight.
Variables (R : realFieldType) (rho : R) (L : nat).
Hypotheses (rho0 : 0 < rho) (rho1 : rho < 1).
Definition last_weight := rho ^+ L.+1 * (1 - rho ^+ 2).
Let rr0 : 0 < 1 - rho ^+ 2. Proof. by rewrite rho_lt1 // rho0 rho1. Qed.
Lemma last_weight_gt0 : 0 < last_weight. Proof. by rewrite mulr_gt0 ?exprn_gt0. Qed.
Lemma last_weight_le : last_weight <= rho ^+ L.+1.
Proof. by rewrite ler_pimulr ?exprn_ge0 ?(ltW rho0) // ler_subl_addr ler_addl sqr_ge0. Qed.
Lemma last_weight_le1 : last_weight <= 1.
Proof. by apply: le_trans last_weight_le _; rewrite exprn_ile1 ?(ltW rho0) ?(ltW rho1). Qed.
Lemma last_weight_sqr : last_weight ^+ 2 < 1 - rho ^+ 2.
Proof.
have q1 : 1 - rho ^+ 2 < 1 by rewrite ltr_subl_addr ltr_addl exprn_gt0.
apply: (@le_lt_trans _ _ ((1 - rho ^+ 2) ^+ 2)).
  rewrite ler_pexpn2r ?nnegrE ?(ltW rr0) ?(ltW last_weight_gt0) // ler_pimull ?(ltW rr0) //.
  by rewrite exprn_ile1 ?(ltW rho0) ?(ltW rho1).
by rewrite expr2 gtr_pmull.
Qed.
Lemma last_weight_rho : last_weight ^+ 2 <= rho ^+ 2.
Proof.
rewrite ler_pexpn2r ?nnegrE ?(ltW rho0) ?(ltW last_weight_gt0) //; apply: le_trans last_weight_le _.
by rewrite exprS ler_pimulr ?(ltW rho0) // exprn_ile1 ?(ltW rho0) ?(ltW rho1).
Qed.
Lemma powers_le K : \sum_(1 <= l < K.+1) rho ^+ (2 * l) <= K%:R * rho ^+ 2.
Proof.
rewrite big_nat; apply: (@le_trans _ _ (\sum_(1 <= l < K.+1 | (0 < l < K.+1)%N) rho ^+ 2)).
  apply: ler_sum => l /andP [l0 _]; apply: ler_wiexpn2l; rewrite ?(ltW rho0) ?(ltW rho1) //.
  by rewrite -[X in (X <= _)%N]muln1 leq_mul2l l0.
by rewrite -big_nat sumr_const_nat subn1 mulr_natl.
Qed.
End Weight.

Theorem printed_bound_fails : Statements.Geometric.printed_bound_fails.
Proof.
move=> R n L rho /andP [rho0 rho1]; set r := last_weight rho L.
have r0 : 0 < r := last_weight_gt0 L rho0 rho1; have hr : r <= rho ^+ L.+1 := last_weight_le L rho0.
have r_le1 : r <= 1 := last_weight_le1 L rho0 rho1.
exists one_wide, (weight L r), (fun=> chain L r), (chain L r), 1.
split; rewrite ?(chain_gap _ rho0 rho1 r0 hr) ?chain_sum.
- by split=> //; apply: chain_linear.
- exact: chain_A1.
- exact: chain_A2.
- by split; [apply: chain_A3|apply: chain_variant].
rewrite expr1n mul1r ltr_pmul2l ?ltr0n //; apply: le_lt_trans (powers_le rho0 rho1 _) _.
by rewrite ltr_pmul2l ?ltr0n // ltr_subr_addl -ltr_subr_addr last_weight_sqr.
Qed.

Theorem printed_relative_bound_fails : Statements.Geometric.printed_relative_bound_fails.
Proof.
move=> R n L rho /andP [rho0 rho2]; set r := last_weight rho L.
have rho1 : rho < 1 by apply: le_lt_trans rho2 _; rewrite ltr_pdivr_mulr ?ltr0n // mul1r ltr1n.
have r0 : 0 < r := last_weight_gt0 L rho0 rho1; have hr : r <= rho ^+ L.+1 := last_weight_le L rho0.
have r_le1 : r <= 1 := last_weight_le1 L rho0 rho1.
exists one_wide, (weight L r), (fun=> chain L r), (chain L r), 1, 1 => error.
have quarter : rho ^+ 2 <= 1 / 4%:R.
  have -> : 1 / 4%:R = (1 / 2%:R) ^+ 2 :> R by field.
  by rewrite ler_pexpn2r ?nnegrE ?(ltW rho0) // divr_ge0 ?ler01 ?ler0n.
have least : 3%:R / 8%:R <= error.
  rewrite /error (chain_gap _ rho0 rho1 r0 hr) chain_lai ler_pdivl_mulr ?mulr_gt0 ?ltr0n //.
  rewrite mulrCA ler_pmul2l ?ltr0n //.
  have -> : 3%:R / 8%:R * L.+2%:R = (L.+2%:R / 2%:R) * (3%:R / 4%:R) :> R by field.
  apply: ler_pmul; rewrite ?divr_ge0 ?ler0n //.
    by rewrite ler_pdivr_mulr ?ltr0n // -natrM ler_nat mulnC mul2n -addnn addSnnS leq_addl.
  rewrite ler_subr_addl -ler_subr_addr; apply: le_trans (last_weight_rho L rho0 rho1) _.
  by apply: le_trans quarter _; rewrite le_eqVlt; apply/orP; left; apply/eqP; field.
split=> //.
- by split=> //; apply: chain_linear.
- exact: chain_A1.
- by split; [apply: chain_A2|apply: chain_A3].
- split; first exact: chain_variant.
  by split=> [|z]; rewrite ?ltr01 // chain_alpha.
split=> //; apply: lt_le_trans least.
rewrite expr1n divr1 mul1r geometric_sum ?gt_eqF ?rho_lt1 ?rho0 ?rho1 //.
have q0 : 0 < 1 - rho ^+ 2 by rewrite rho_lt1 // rho0 rho1.
rewrite ltr_pdivr_mulr //; apply: (@lt_le_trans _ _ (rho ^+ 2)).
  by rewrite gtr_pmulr ?exprn_gt0 // ltr_subl_addr ltr_addl exprn_gt0.
rewrite -subr_ge0 (_ : _ - _ = 11%:R / 8%:R * (1 / 4%:R - rho ^+ 2) + 1 / 32%:R); last by field.
apply: addr_ge0; last by rewrite divr_ge0 ?ler01 ?ler0n.
by apply: mulr_ge0; [rewrite divr_ge0 ?ler0n|rewrite subr_ge0].
Qed.

Theorem sum_grows_with_depth : Statements.Geometric.sum_grows_with_depth.
Proof.
by move=> R rho L /andP [rho0 _]; rewrite [X in _ < X]big_nat_recr //= ltr_addl exprn_gt0.
Qed.

Theorem relative_limit : Statements.Geometric.relative_limit.
Proof.
move=> R d n L V j delta small; set all := \sum_z _ => all0.
set last := \sum_z _; cbv zeta.
have lai_all : lai L.+1 V j = all by apply: eq_bigr => z _; rewrite mulrC.
set P := \sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j l.
have -> : ghost L.+1 V j = last + P.
  rewrite -[LHS](subrK (lli L.+1 V j)) ghost_lli addrC; congr (_ + _).
  by apply: eq_bigr => z _; rewrite mulrC.
have a0 : 0 < `|all| by rewrite normr_gt0.
rewrite lai_all (_ : 1 - last / all = (all - last) / all); last by field.
rewrite normf_div -mulrBl normrM normfV normr_id mulrA ler_pmul2r ?invr_gt0 //.
apply: le_trans (_ : `|P| <= _).
  apply: le_trans (ler_dist_dist _ _) _.
  by have -> : all - (last + P) - (all - last) = - P by [ring]; rewrite normrN.
rewrite /P mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => z _.
rewrite mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _.
rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l hl.
by rewrite !normrM mulrCA; apply: ler_wpmul2l => //; apply: small.
Qed.

Theorem assumptions_met : Statements.Geometric.assumptions_met.
Proof.
move=> R n L rho /andP [rho0 rho1]; set r := last_weight rho L.
have r0 : 0 < r := last_weight_gt0 L rho0 rho1; have hr : r <= rho ^+ L.+1 := last_weight_le L rho0.
have r_le1 : r <= 1 := last_weight_le1 L rho0 rho1.
have r1 : r ^+ 2 <= 1.
  by apply: le_trans (last_weight_rho L rho0 rho1) _; rewrite exprn_ile1 ?(ltW rho0) ?(ltW rho1).
exists one_wide, (weight L r), (fun=> chain L r), (chain L r), 1, 1; split.
- by split=> //; apply: chain_linear.
- by split; [apply: chain_A1|apply: chain_A2].
- split; [exact: chain_A3|exact: chain_variant|].
  by move=> z l hl; rewrite !chain_cos.
- split=> [|z|z l /andP [_ hl]]; rewrite ?ltr01 // chain_alpha ?ler01 //.
have sum0 : 0 < \sum_(z < n.+1) beta (chain L r) (chain L r) L.+2 by rewrite chain_sum ltr0Sn.
split=> // [z l /andP [_ hl]||].
- rewrite chain_signal; move: hl; rewrite leq_eqVlt => /orP [/eqP ->|hl];
  first by rewrite chain_signal ler01 lexx.
  by rewrite chain_beta // sqr_ge0 r1.
- rewrite /lli (eq_bigr (fun=> 1)) => [|z _]; last by rewrite chain_alpha // chain_signal mulr1.
  by rewrite sumr_const card_ord pnatr_eq0.
rewrite -normr_eq0 -normrN -/(influence_lai _ _ _) chain_lai -natrM pnatr_eq0 //.
Qed.
